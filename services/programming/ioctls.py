"""The ioctls of both drivers: their numbers, their structures, and the calls themselves.

Numbers and structures are those of `linux/fpga-dfl.h` and of the out-of-tree driver's
`intel-fpga.h`: little endian, naturally aligned, `argsz` the structure's own size. A
`DriverNode` makes them through its `DriverCalls`, and raises `OSError` as the kernel does.
"""

import errno
import fcntl
import os
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.programming.port_holders import Holder, holders_of

_ARGUMENTS: Final = struct.Struct("<4I")


@dataclass(frozen=True, slots=True)
class Ioctls:
    """The numbers and structures of a driver's ioctls."""

    version: int
    """Gets the version of the driver's interface; on either node."""
    reset: int
    """Resets a port."""
    info: int
    """Gets what a port has."""
    region: int
    """Gets what a region of a port's memory is like."""
    program: int
    """Reconfigures a port; on the engine's node."""
    release: int
    """Takes a port from the physical function."""
    assign: int
    """Gives a port back to the physical function."""
    info_form: struct.Struct
    """Structure of `info`."""
    program_form: struct.Struct
    """Structure of `program`."""
    move_form: struct.Struct
    """Structure of `release` and `assign`."""


IOCTLS: Final = {
    "dfl": Ioctls(
        *(0xB600, 0xB640, 0xB641, 0xB642, 0xB680, 0x4004B681, 0x4004B682),
        info_form=_ARGUMENTS,
        program_form=struct.Struct("<4IQ"),
        move_form=struct.Struct("<I"),
    ),
    "opae": Ioctls(
        *(0xB500, 0xB540, 0xB541, 0xB542, 0xB580, 0xB581, 0xB582),
        info_form=struct.Struct("<6I"),
        program_form=struct.Struct("<4IQQ"),
        move_form=struct.Struct("<3I"),
    ),
}
"""By driver."""

_REGION: Final = struct.Struct("<4I2Q")
_STATUS: Final = struct.Struct("<Q")
_STATUS_AT: Final = 24

MAX_PORT: Final = 0xFFFF_FFFF
"""The largest number of a port that the structures hold."""

MAX_REGIONS: Final = 16
"""Regions that are asked for; ports have one or two."""


@dataclass(frozen=True, slots=True)
class PortInfo:
    """What a port has."""

    flags: int
    """None are defined."""
    regions: int
    """Number of its regions of memory."""
    umsgs: int
    """Number of its unordered messages."""
    capability: int | None = None
    """What it can do, one bit each; None under the in-tree driver."""
    irqs: int | None = None
    """Number of its function's interrupts; None under the in-tree driver."""


@dataclass(frozen=True, slots=True)
class RegionInfo:
    """A region of a port's memory."""

    index: int
    """Its number: 0 is the function's own, 1 that of the signal tap."""
    flags: int
    """Allowed access: 1 read, 2 write, 4 map."""
    size: int
    """Bytes."""
    offset: int
    """Where to map it in the node."""

    @property
    def access(self) -> str:
        """Allowed access, as `rwm`."""
        return "".join(letter for bit, letter in enumerate("rwm") if self.flags >> bit & 1)


_BEFORE_HARDWARE: Final = frozenset(
    {
        errno.EACCES,
        errno.EBUSY,
        errno.EFAULT,
        errno.EINVAL,
        errno.ENOMEM,
        errno.ENOSYS,
        errno.ENOTTY,
        errno.EPERM,
    }
)
"""What a driver answers before it touches the hardware (`fme_pr` in `drivers/fpga/dfl-fme-pr.c`,
`fpga_region_program_fpga`)."""


class ProgrammingFailed(OSError):
    """The driver didn't reconfigure.

    Args:
        error: What the kernel says.
        status: The hardware's errors, one bit each; 0 where the driver doesn't say (in-tree).
    """

    def __init__(self, error: OSError, status: int) -> None:
        super().__init__(error.errno, error.strerror)
        self.status = status

    @property
    def may_have_begun(self) -> bool:
        """Whether the driver may have started, so that the port may be half programmed."""
        return self.errno not in _BEFORE_HARDWARE

    @property
    def refused_by_hardware(self) -> bool:
        """Whether the hardware refused, and its registers may say why."""
        return self.errno in {errno.EIO, errno.ETIMEDOUT}


class DriverCalls:
    """Calls the drivers behind device nodes: the kernel's. Subclasses can be injected instead."""

    def open(self, path: Path, *, alone: bool = False) -> int:
        """Open a device node for ioctls.

        Args:
            path: The node.
            alone: Whether nobody else may have it open. The drivers refuse with EBUSY if somebody
                has, and refuse others until it is closed (O_EXCL, `dfl_feature_dev_use_begin`).

        Raises:
            OSError: As the driver answers.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY
        return os.open(path, flags | (os.O_EXCL if alone else 0))

    def ioctl(
        self,
        node: "DriverNode",
        request: int,
        argument: int | bytearray,
        data: "array[int] | None" = None,  # noqa: ARG002 - the kernel has its address
    ) -> int:
        """Make a call; a bytearray holds afterwards what the driver has written.

        Args:
            node: The open node.
            request: The ioctl's number.
            argument: Its structure, or a number.
            data: What an address in the structure points to; it must outlive the call.

        Raises:
            OSError: As the driver answers.
        """
        return fcntl.ioctl(node.descriptor, request, argument)

    def holders(self, node: "DriverNode") -> tuple[Holder, ...]:
        """The other processes that have an open node open too."""
        return holders_of(node.descriptor, node.path)


KERNEL: Final = DriverCalls()
"""The kernel's drivers."""


@dataclass(frozen=True, slots=True)
class DriverNode:
    """An open device node and its driver's ioctls."""

    descriptor: int
    path: Path
    ioctls: Ioctls
    calls: DriverCalls = KERNEL

    def api_version(self) -> int:
        """The version of the driver's interface; only 0 is known."""
        return self.calls.ioctl(self, self.ioctls.version, 0)

    def reset_port(self) -> None:
        """Reset a port and the function in it."""
        self.calls.ioctl(self, self.ioctls.reset, 0)

    def port_info(self) -> PortInfo:
        """What a port has."""
        form = self.ioctls.info_form
        argument = bytearray(form.size)
        struct.pack_into("<I", argument, 0, form.size)
        self.calls.ioctl(self, self.ioctls.info, argument)
        _, flags, *rest = form.unpack(argument)
        if len(rest) == 2:
            return PortInfo(flags, *rest)
        capability, regions, umsgs, irqs = rest
        return PortInfo(flags, regions, umsgs, capability, irqs)

    def region_info(self, index: int) -> RegionInfo:
        """What a region of a port's memory is like."""
        argument = bytearray(_REGION.pack(_REGION.size, 0, index, 0, 0, 0))
        self.calls.ioctl(self, self.ioctls.region, argument)
        _, flags, _, _, size, offset = _REGION.unpack(argument)
        return RegionInfo(index, flags, size, offset)

    def program_port(self, port: int, data: "array[int]") -> None:
        """Reconfigure a port; returns when the hardware has finished. For an engine's node.

        Args:
            port: The port's number within its card.
            data: The raw bitstream, an array of bytes.

        Raises:
            ProgrammingFailed: With EIO if the hardware refused.
        """
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
