"""The process that serves a node: what is left of `accelbind plugin` once its flags are read.

Reading flags and settings takes Typer and pydantic, 13 MiB that every node would pay for as long as
its plugin runs. So once they are read, the process replaces itself by one that has only what it
needs; it stays the same process to whoever started it.
"""

import asyncio
import gc
import importlib.util
import os
import pickle
import sys
import types
from typing import BinaryIO, Final, NoReturn

from plugin.options import PluginOptions
from services.domain.errors import WorldError

_BEGIN: Final = """\
import os, pickle, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    file = os.fdopen({descriptor}, "rb")
    sys.path[:] = pickle.load(file)
    from accelbind.plugin_process import main
    code = main(file)
except KeyboardInterrupt:
    code = 130
sys.exit(code)
"""
"""Asked to end before it serves, it ends: nothing is there yet that would have to be undone."""


ONE_HEAP: Final = {"MALLOC_ARENA_MAX": "1"}
"""glibc gives each thread of gRPC a heap of its own, and each keeps the most that it ever held.

Over thousands of registrations that is some MiB, which nobody gets back; the threads take turns
anyway, and have no need of it (mallopt(3), M_ARENA_MAX). Whoever sets the variable knows better.
"""


def become(options: PluginOptions, *, debug: bool) -> NoReturn:
    """Replaces this process by the one that serves.

    Args:
        options: What it has to know.
        debug: Whether a mistake shows a traceback.
    """
    descriptor = os.memfd_create("accelbind-options")
    os.write(descriptor, pickle.dumps(sys.path) + pickle.dumps((options, debug)))
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)  # noqa: FBT003 - positional only
    sys.stdout.flush()
    sys.stderr.flush()
    begin = _BEGIN.format(descriptor=descriptor)
    # What follows the code is for who looks at the list of processes.
    arguments = [sys.executable, "-P", "-c", begin, "accelbind", *sys.argv[1:]]
    try:
        os.execve(sys.executable, arguments, ONE_HEAP | os.environ)  # noqa: S606 - ourselves
    except OSError as error:  # which names no file
        text = f"{sys.executable} can't be run by user {os.geteuid()}: {error.strerror}"
        raise WorldError(text) from error


def main(file: BinaryIO) -> int:
    """Serves, and gives the exit code.

    Args:
        file: What `become` wrote.
    """
    with file:
        options, debug = pickle.load(file)  # noqa: S301 - our own, from before
    try:
        _serve(options)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - as in `accelbind.cli.main`
        from accelbind.cli import report  # noqa: PLC0415 - Typer, now that it doesn't matter

        return report(error, debug=debug)
    return 0


def _serve(options: PluginOptions) -> None:
    # Its own log has another format and says nothing that ours doesn't.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    gc.disable()  # nothing of what is imported is garbage
    _import_structlog()
    _spare_models()
    from plugin.app import run  # noqa: PLC0415 - takes its time, and may say why it can't
    from services.runtime import logging  # noqa: PLC0415

    gc.freeze()  # nor will it be: a search for garbage would stop a call for all of it
    gc.enable()
    logging.configure(options.log_level, options.log_format)
    asyncio.run(run(options))


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


def _spare_models() -> None:
    """Lets lightkube be imported without its models of all kinds that Kubernetes has.

    The client here needs its configuration and credentials only, which are modules of their own;
    what the package imports beside them would cost 2.4 MiB.
    """
    found = importlib.util.find_spec("lightkube")
    if found is None or found.submodule_search_locations is None or "lightkube" in sys.modules:
        return
    package = types.ModuleType("lightkube")
    package.__path__ = list(found.submodule_search_locations)
    package.__spec__ = found
    models = types.ModuleType("lightkube.core.internal_models")
    models.__dict__["meta_v1"] = None  # what its exceptions import, for what isn't used here
    sys.modules |= {each.__name__: each for each in (package, models)}
