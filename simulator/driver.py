"""A stand-in for the cards' driver: it programs and resets the ports of a rack.

The nodes of a rack are files without ioctls. `SimulatedCalls`, which `simulator.command` and
tests inject, sends what would be an ioctl to a socket in the rack's `dev`: the name of the node,
the number, the structure, and the data that an address in the structure points to. `DriverStandIn`
answers there with an errno, in a process of its own or in a thread of a test.

As the drivers do, it takes the structures of their ioctls and refuses what doesn't fit
(`tests/kernel/stand_ins_scenarios.py` compares the errnos with those of Linux's driver). As the
hardware does, it takes a bitstream for what is in it, whatever the metadata around that said:
`raw_bitstream` makes one. What is none is refused with EIO. A release and an assignment of a port
are not modelled (ENOTTY).

    python -m simulator.driver --root DIR

prints a line of JSON for each port that is programmed or reset.
"""

import argparse
import contextlib
import errno
import json
import os
import re
import signal
import stat
import struct
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Final, Self

from services.programming.ioctls import DriverCalls, DriverNode, holders_of
from simulator.devices import DeviceTree

SOCKET: Final = "accelbind-driver.sock"

_SECONDS: Final = 300.0
RAW: Final = re.compile(rb"synthetic bitstream of ([0-9a-f]{32})\n")
"""What hardware takes for a bitstream."""
_CLASSES: Final = {"dfl": "fpga_region", "intel-fpga": "fpga"}
_NODE: Final = re.compile(r"(dfl|intel-fpga)-(fme|port)\.([0-9]+)")
_VERSIONS: Final = {"dfl": 0xB600, "intel-fpga": 0xB500}
_FORMS: Final = {"dfl": struct.Struct("<4IQ"), "intel-fpga": struct.Struct("<4IQQ")}
_RESET: Final = 0x40
_PROGRAM: Final = 0x80


def raw_bitstream(afu_id: str) -> bytes:
    """The bytes that a synthetic card takes for a function."""
    return f"synthetic bitstream of {afu_id}\n".encode().ljust(4096, b"\xa5")


class SimulatedCalls(DriverCalls):
    """The ioctls of a rack's nodes: answered by the stand-in, if one listens beside the nodes."""

    def open(self, path: Path, *, alone: bool = False) -> int:
        """Open a node; of a file that another process has open, only one may be a user."""
        descriptor = super().open(path, alone=alone)
        if alone and stat.S_ISREG(os.fstat(descriptor).st_mode) and holders_of(path):
            os.close(descriptor)
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return descriptor

    def ioctl(
        self,
        node: DriverNode,
        request: int,
        argument: int | bytearray,
        data: "array[int] | None" = None,
    ) -> int:
        """Make a call; without a stand-in, nothing is programmed and there is nothing to reset."""
        folder = node.path.parent
        if not (folder / SOCKET).is_socket():
            if request == node.ioctls.reset:
                return 0
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        structure = bytes(argument) if isinstance(argument, bytearray) else b""
        content = data.tobytes() if data else b""
        error = _call(folder, node.path.name, request, structure, content)
        if error:
            raise OSError(error, os.strerror(error))
        return 0


def _call(folder: Path, *request: object) -> int:
    with _short(folder) as place, Client(f"{place}/{SOCKET}", "AF_UNIX") as connection:
        connection.send(request)
        if not connection.poll(_SECONDS):
            raise TimeoutError("the driver stand-in does not answer")
        try:
            return int(connection.recv())
        except EOFError as error:
            raise OSError(errno.ENODEV, "the driver stand-in has gone") from error


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """A path of a folder that leaves room for a socket's name."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}"
    finally:
        os.close(opened)


@dataclass(frozen=True, slots=True)
class Done:
    what: str
    """`programmed`, `reset` or `refused`."""
    port: str
    afu_id: str
    """The function in it then."""


class DriverStandIn:
    """The stand-in for the driver of all cards of a rack, until it is closed."""

    def __init__(self, root: Path, *, on_done: Callable[[Done], None] = lambda _: None) -> None:
        self.done: list[Done] = []
        self.begun: list[str] = []
        """The ports that were to be programmed, as it began."""
        self.seconds = 0.0
        """How long programming takes; may be changed."""
        self.refuse = False
        """Whether the hardware refuses to be programmed."""
        self.fail_with = 0
        """An errno with which the driver refuses before it asks the hardware; 0 for none."""
        self.go_on = threading.Event()
        """Cleared, programming hangs until it is set."""
        self.go_on.set()
        self._root = root
        self._tree = DeviceTree(root)
        self._on_done = on_done
        (root / "dev" / SOCKET).unlink(missing_ok=True)
        self._ended = contextlib.ExitStack()
        self._address = f"{self._ended.enter_context(_short(root / 'dev'))}/{SOCKET}"
        self._listener = self._ended.enter_context(Listener(self._address, "AF_UNIX", backlog=64))
        self._closed = False
        self._cards: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop answering; waiting calls return."""
        self._closed = True
        Client(self._address, "AF_UNIX").close()  # ends accept()
        self._accepting.join()
        self._ended.close()
        self.go_on.set()

    @property
    def programmed(self) -> list[Done]:
        return [each for each in self.done if each.what == "programmed"]

    def _accept(self) -> None:
        while not self._closed:
            connection = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: "Connection[Any, Any]") -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            node, request, structure, content = connection.recv()
            try:
                self._call(node, request, structure, content)
                error = 0
            except OSError as failure:
                error = failure.errno or errno.EIO
            connection.send(error)

    def _call(self, node: str, request: int, structure: bytes, data: bytes) -> None:
        match = _NODE.fullmatch(node)
        if match is None:
            raise OSError(errno.ENOTTY, "no node of a card")
        family, kind, _ = match.groups()
        call = request - _VERSIONS[family]
        if (kind, call) == ("port", _RESET):
            self._reset(node, family)
        elif (kind, call) == ("fme", _PROGRAM):
            self._program(node, family, structure, data)
        elif (kind, call - _PROGRAM) in (("fme", 1), ("fme", 2)):
            raise OSError(errno.ENOTTY, "not modelled")
        else:
            raise OSError(errno.EINVAL, "no call of this node")

    def _reset(self, port: str, family: str) -> None:
        folder = _device(self._root, family, port)
        self._note("reset", port, (folder / "afu_id").read_text().strip())

    def _program(self, engine: str, family: str, structure: bytes, data: bytes) -> None:
        form = _FORMS[family]
        if len(structure) != form.size:
            raise OSError(errno.EINVAL, "another structure")
        size, flags, number, length, address, *_ = form.unpack(structure)
        if size != form.size or flags:
            raise OSError(errno.EINVAL, "fields that don't fit")
        port = _port_of(_device(self._root, family, engine).parent, family, number)
        if not length + 3 & 0xFFFF_FFFC:  # whole words, counted in 32 bits
            raise OSError(errno.ENOMEM, "no bitstream")
        if length != len(data) or not address:
            raise OSError(errno.EFAULT, "no bitstream there")
        if self.fail_with:
            raise OSError(self.fail_with, os.strerror(self.fail_with))
        with self._card(engine):
            self.begun.append(port.name)
            self.go_on.wait()
            time.sleep(self.seconds)  # what a card takes
            match = RAW.match(data)
            if self.refuse or match is None:
                self._note("refused", port.name, "")
                raise OSError(errno.EIO, "the hardware refuses")
            self._tree.file(str(port.relative_to(self._root) / "afu_id"), match[1].decode())
            self._note("programmed", port.name, match[1].decode())

    def _card(self, engine: str) -> threading.Lock:
        with self._lock:
            return self._cards.setdefault(engine, threading.Lock())

    def _note(self, what: str, port: str, afu_id: str) -> None:
        done = Done(what, port, afu_id)
        with self._lock:
            self.done.append(done)
        self._on_done(done)


def _device(root: Path, family: str, name: str) -> Path:
    """The folder of an engine or a port, wherever its card is."""
    for folder in _folders(root / "sys/class" / _CLASSES[family]):
        if (folder / name).is_dir():
            return folder / name
    raise OSError(errno.ENODEV, "no such device")


def _port_of(card: Path, family: str, number: int) -> Path:
    for folder in card.glob(f"{family}-port.*"):
        if int((folder / "id").read_text()) == number:
            return folder
    raise OSError(errno.EINVAL, "no such port")


def _folders(parent: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from (each for each in parent.iterdir() if each.is_dir())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m simulator.driver", description="Stand in for the driver of a rack's cards."
    )
    parser.add_argument("--root", type=Path, required=True, help="the rack's folder")
    parser.add_argument("--log", type=Path, help="a file that gets the same lines")
    options = parser.parse_args(arguments)
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # of all threads, which begin later

    def report(done: Done) -> None:
        line = json.dumps({"what": done.what, "port": done.port, "afuId": done.afu_id})
        print(line, flush=True)  # noqa: T201 - what the program is asked for
        if options.log is not None:
            with options.log.open("a") as log:
                log.write(f"{line}\n")

    with DriverStandIn(options.root, on_done=report):
        print(json.dumps({"what": "ready"}), flush=True)  # noqa: T201 - the same
        signal.sigwait(ends)
    return 0


if __name__ == "__main__":
    sys.exit(main())
