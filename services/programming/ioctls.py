"""Device nodes: the ioctls of both drivers, and which processes have a node open.

A `DriverNode` makes them through its `DriverCalls`, and raises `OSError` as the kernel does.
"""

import errno
import fcntl
import os
import stat
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Ioctls:
    """The numbers and structures of a driver's ioctls."""

    reset: int
    """On a port's node; the rest is for an engine's."""
    program: int
    release: int
    assign: int
    program_form: struct.Struct
    move_form: struct.Struct
    """Of `release` and `assign`."""


# Of `linux/fpga-dfl.h` and of the out-of-tree driver's `intel-fpga.h`: little endian, naturally
# aligned. Where a structure starts with its own size, they call that `argsz`.
IOCTLS: Final = {
    "dfl": Ioctls(
        *(0xB640, 0xB680, 0x4004B681, 0x4004B682),
        program_form=struct.Struct("<4IQ"),
        move_form=struct.Struct("<I"),
    ),
    "opae": Ioctls(
        *(0xB540, 0xB580, 0xB581, 0xB582),
        program_form=struct.Struct("<4IQQ"),
        move_form=struct.Struct("<3I"),
    ),
}

_STATUS: Final = struct.Struct("<Q")
_STATUS_AT: Final = 24

MAX_PORT: Final = 0xFFFF_FFFF


class ProgrammingFailed(OSError):
    """The driver didn't reconfigure."""

    def __init__(self, error: OSError, status: int) -> None:
        super().__init__(error.errno, error.strerror)
        self.status = status
        """The hardware's errors, one bit each; 0 where the driver doesn't say (in-tree)."""

    @property
    def refused_by_hardware(self) -> bool:
        """Whether the hardware refused, and its registers may say why."""
        return self.errno in {errno.EIO, errno.ETIMEDOUT}


class DriverCalls:
    """Calls the drivers behind device nodes: the kernel's. Subclasses can be injected instead."""

    def open(self, path: Path, *, alone: bool = False) -> int:
        """Open a device node for ioctls; alone, if nobody else may have it open."""
        # With O_EXCL the drivers refuse with EBUSY if somebody has it, and refuse others until it
        # is closed (`dfl_feature_dev_use_begin`).
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY
        return os.open(path, flags | (os.O_EXCL if alone else 0))

    def ioctl(
        self,
        node: "DriverNode",
        request: int,
        argument: int | bytearray,
        data: "array[int] | None" = None,  # noqa: ARG002 - the kernel has its address
    ) -> int:
        """Make a call.

        Args:
            node: The open node.
            request: The ioctl's number.
            argument: Its structure, which holds afterwards what the driver has written; or 0.
            data: What an address in the structure points to; it must outlive the call.
        """
        return fcntl.ioctl(node.descriptor, request, argument)


KERNEL: Final = DriverCalls()


@dataclass(frozen=True, slots=True)
class DriverNode:
    """An open device node and its driver's ioctls."""

    descriptor: int
    path: Path
    ioctls: Ioctls
    calls: DriverCalls

    def reset_port(self) -> None:
        """Reset a port and the function in it."""
        self.calls.ioctl(self, self.ioctls.reset, 0)

    def program_port(self, port: int, data: "array[int]") -> None:
        """Reconfigure a port of this engine; returns when the hardware has finished."""
        # The kernel reads the bitstream from the address in the structure. An array knows the
        # address of its bytes; they stay there while `data` is referred to and keeps its length.
        address, size = data.buffer_info()
        argument = bytearray(self.ioctls.program_form.size)
        struct.pack_into("<4IQ", argument, 0, len(argument), 0, port, size, address)
        try:
            self.calls.ioctl(self, self.ioctls.program, argument, data)
        except OSError as error:
            has_status = len(argument) >= _STATUS_AT + _STATUS.size
            status = _STATUS.unpack_from(argument, _STATUS_AT)[0] if has_status else 0
            raise ProgrammingFailed(error, status) from error

    def release_port(self, port: int) -> None:
        """Take a port from its card's physical function, so that a virtual one can have it."""
        self.calls.ioctl(self, self.ioctls.release, self._moved(port))

    def assign_port(self, port: int) -> None:
        """Give a port back to its card's physical function."""
        self.calls.ioctl(self, self.ioctls.assign, self._moved(port))

    def _moved(self, port: int) -> bytearray:
        form = self.ioctls.move_form
        return bytearray(form.pack(port) if form.size == 4 else form.pack(form.size, 0, port))


def holders_of(node: Path) -> list[str]:
    """The other processes that have a node open: `process 12 (bash)`.

    Only those that can be seen from here: all on the host, its own in a pod without `hostPID`.
    """
    wanted = _identity(str(node))
    return list(_search(wanted)) if wanted else []


def _identity(path: str) -> tuple[str, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - plain paths, fast
    except OSError:
        return None
    if stat.S_ISCHR(status.st_mode):  # other paths of the device have the same number
        return "device", status.st_rdev, 0
    return "file", status.st_dev, status.st_ino


def _search(wanted: tuple[str, int, int]) -> Iterator[str]:
    for pid in sorted(int(name) for name in _names("/proc") if name.isdigit()):
        folder = f"/proc/{pid}"
        opened = (_identity(f"{folder}/fd/{each}") for each in _names(f"{folder}/fd"))
        if pid != os.getpid() and wanted in opened:
            command = _command(Path(folder, "comm"))
            yield f"process {pid} ({command})" if command else f"process {pid}"


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is needed, fast
    except OSError:  # the process is gone, or may not be inspected
        return []


def _command(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:32]
    except OSError:
        return ""
