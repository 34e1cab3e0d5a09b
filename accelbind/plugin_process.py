"""The process that serves a node: what `accelbind plugin` is from its first moment.

Reading flags and settings takes Typer and pydantic: 13 MiB that every node would pay for as long as
its plugin runs, and as long again as importing what serves. So a child reads them, meanwhile this
process imports what serves, and then takes the outcome over:

    accelbind plugin ─┬─ child: flags, variables, file ─┬─ help, settings, an error ──► exit code
                      │                                 └─ options ─┐
                      └─ this one: imports what serves ─────────────┴─► serves ───────► exit code

The child dies with this process. Asked to end before it serves, this process ends at once: nothing
is there yet that would have to be undone.
"""

import ctypes
import gc
import os
import pickle
import signal
import sys
import types
from typing import TYPE_CHECKING, Final

from accelbind import __version__
from plugin.options import PluginOptions
from services.process.errors import WorldError

if TYPE_CHECKING:
    from services.programming.ioctls import DriverCalls

_INTERRUPTED: Final = 130
_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that a process gets when its parent ends."""
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""mallopt(3)."""
_LARGE: Final = 1024 * 1024
"""Bytes of what has pages of its own, which go back to the system once it is let go."""
_TLS_BUFFER: Final = 32 * 1024
"""Bytes; a record has 16 KiB at most (RFC 8446, 5.1)."""


def main() -> int:
    """Reads the settings in a child, serves, and gives the exit code."""
    gc.disable()  # little of what is imported is garbage, which `_prepare` looks for in the end
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, _INTERRUPTED)):
        signal.signal(number, lambda *_, code=code: os._exit(code))
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _read_settings(writer, parent)
    os.close(writer)
    trouble = _prepare()
    with os.fdopen(reader, "rb") as file:
        handed = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _serve_as_told(handed, trouble) if code == 0 and handed else _told(code)


def _read_settings(writer: int, parent: int) -> None:
    """The child: reads the settings, writes them to a pipe if they are to be served by, and ends.

    Args:
        writer: The pipe.
        parent: Who waits for it.
    """
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before it could have been noticed
        os._exit(_INTERRUPTED)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    from accelbind.cli import main as run  # noqa: PLC0415 - what the child is for

    def hand_over(options: PluginOptions, debug: bool) -> None:  # noqa: FBT001 - as it is called
        with os.fdopen(writer, "wb") as file:
            pickle.dump((options, debug), file)

    code = run(serve=hand_over)
    sys.stderr.flush()
    os._exit(code)  # an interpreter that ends in order takes as long as it has imported


def _told(code: int) -> int:
    """The exit code when there is nothing to serve by; the child has said why, if it could."""
    if code >= 0:
        return code
    name = signal.Signals(-code).name
    return _report(WorldError(f"what reads the settings was ended by {name}: too little memory?"))


def _serve_as_told(handed: bytes, trouble: Exception | None) -> int:
    options, debug = pickle.loads(handed)  # noqa: S301 - our own child's
    if trouble is not None:
        return _report(trouble, debug=debug)
    try:
        serve(options)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - as in `accelbind.cli.main`
        return _report(error, debug=debug)
    return 0


def _report(error: Exception, *, debug: bool = False) -> int:
    from accelbind.cli import report  # noqa: PLC0415 - Typer, now that it doesn't matter

    return report(error, debug=debug)


def serve(options: PluginOptions, calls: "DriverCalls | None" = None) -> None:
    """Serves this node until it is asked to end.

    Args:
        options: What it has to know.
        calls: Makes the ioctls of the cards' drivers, if not the kernel.

    Raises:
        AccelbindError: It can't start.
    """
    import asyncio  # noqa: PLC0415 - the child has no need of it

    from plugin.app import run  # noqa: PLC0415 - the same
    from services.process import logging  # noqa: PLC0415 - the same

    gc.freeze()  # none of it will be garbage: a search for that would stop a call for all of it
    gc.enable()
    logging.configure(options.log_level, options.log_format)
    asyncio.run(run(options, version=__version__, calls=calls))


def _prepare() -> Exception | None:
    """Makes this process one that can serve, and gives what stands in the way of that.

    The child is heard first: whoever asks for help gets it.
    """
    # Its own log has another format and says nothing that ours doesn't.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        _spare_the_heap()
        _import_structlog()
        _import_prometheus()
        _name_httpx()
        import plugin.app  # noqa: F401, PLC0415 - takes its time, and may say why it can't
        import services.process.logging  # noqa: F401, PLC0415 - the same

        _spare_tls()
        gc.collect()  # classes with slots are made twice; it is done before the child is
    except Exception as error:  # noqa: BLE001 - it is raised as soon as it counts
        return error
    return None


def _spare_the_heap() -> None:
    """Has all threads share one heap that holds nothing large, unless the environment says how.

    glibc gives each thread of gRPC a heap of its own, and each keeps the most that it ever held.
    Over thousands of registrations that is some MiB, which nobody gets back; the threads take turns
    anyway, and have no need of it. It counts for threads that don't exist yet. And once something
    large is let go, glibc puts what is smaller into the heap from then on: the packed part of an
    OpenCL program, 20 MB, would stay there for good.
    """
    mallopt = getattr(_libc(), "mallopt", None)  # which musl hasn't, nor heaps of threads
    if mallopt is None:
        return
    if "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)


def _spare_tls() -> None:
    """Gives TLS connections buffers for two records, not the 256 KiB that asyncio has for each.

    The plugin has a few of them with the API server, open for as long as it runs.
    """
    from asyncio import sslproto  # noqa: PLC0415 - the child has no need of it

    sslproto.SSLProtocol.max_size = _TLS_BUFFER


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _import_structlog() -> None:
    """Imports structlog without rich, which it takes wherever it finds it.

    Rich's tracebacks would cost 3 MiB more, and nobody sees them in a log.
    """
    absent = "rich" not in sys.modules
    if absent:
        sys.modules["rich"] = None  # type: ignore[assignment]  # makes `import rich` fail
    try:
        import structlog  # noqa: F401, PLC0415 - imported for what it does then
    finally:
        if absent:
            del sys.modules["rich"]


class _Unused(types.ModuleType):
    """Stands for a module of which nothing will be used, whatever is imported from it."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _import_prometheus() -> None:
    """Imports prometheus_client without the servers and clients that it could expose metrics by.

    `services.process.metrics` is small; those would cost 2 MiB and 15 ms.
    """
    spared = ("http.server", "socketserver", "urllib.request", "wsgiref.simple_server")
    absent = [name for name in spared if name not in sys.modules]
    sys.modules |= {name: _Unused(name) for name in absent}
    try:
        import prometheus_client  # noqa: F401, PLC0415 - imported for what it does then
    finally:
        for name in absent:
            del sys.modules[name]


def _name_httpx() -> None:
    """Tells httpx2 which version it is, which it would otherwise read from what pip has noted.

    It only goes into a header that the client here sets itself; the libraries to read it with would
    cost 1 MiB, where there is an API server.
    """
    known = types.ModuleType("httpx2.__version__")
    known.__dict__.update(__title__="httpx2", __description__="", __version__="")
    sys.modules.setdefault(known.__name__, known)
