"""The ioctls of both drivers: their numbers, their structures, and how they are made.

Numbers and structures are those of `linux/fpga-dfl.h` and of the out-of-tree driver's
`intel-fpga.h`: little endian, naturally aligned, `argsz` the structure's own size. A
`DriverNode` makes them through its `DriverCalls`, and raises `OSError` as the kernel does.
"""

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
    """The numbers and structures of a driver's ioctls.

    Args:
        version: Asks either node for the version of the driver's interface.
        reset: Resets a port.
        info: Asks what a port has.
        region: Asks about a region of a port's memory.
        program: Reconfigures a port; on the engine's node.
        release: Takes a port from the physical function.
        assign: Gives it back.
        info_form: Structure of `info`.
        program_form: Structure of `program`.
        move_form: Structure of `release` and `assign`.
    """

    version: int
    reset: int
    info: int
    region: int
    program: int
    release: int
    assign: int
    info_form: struct.Struct
    program_form: struct.Struct
    move_form: struct.Struct


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
    """What a port has.

    Args:
        flags: None are defined.
        regions: How many regions of memory.
        umsgs: How many unordered messages.
        capability: What it can do, a bit a thing; None under the in-tree driver.
        irqs: How many interrupts its function has, likewise.
    """

    flags: int
    regions: int
    umsgs: int
    capability: int | None = None
    irqs: int | None = None


@dataclass(frozen=True, slots=True)
class RegionInfo:
    """A region of a port's memory.

    Args:
        index: Its number: 0 is the function's own, 1 that of the signal tap.
        flags: What may be done with it: 1 read, 2 write, 4 map.
        size: Bytes.
        offset: Where to map it in the node.
    """

    index: int
    flags: int
    size: int
    offset: int

    @property
    def access(self) -> str:
        """What may be done with it, as `rwm`."""
        return "".join(letter for bit, letter in enumerate("rwm") if self.flags >> bit & 1)


class ProgrammingFailed(OSError):
    """The driver didn't reconfigure.

    Args:
        error: What the kernel says.
        status: The hardware's errors, a bit a kind; 0 where the driver doesn't say (in-tree).
    """

    def __init__(self, error: OSError, status: int) -> None:
        super().__init__(error.errno, error.strerror)
        self.status = status


class DriverCalls:
    """How the drivers behind device nodes are called: the kernel's ioctls. Others are injected."""

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
    """A device node that is open, and how its driver is called.

    Args:
        descriptor: What it is open as.
        path: Where it is.
        ioctls: Those of its driver.
        calls: Who makes them.
    """

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


def open_node(path: str | os.PathLike[str], *, alone: bool = False) -> int:
    """Opens a device node for ioctls.

    Args:
        path: The node.
        alone: Whether nobody else may have it open; the drivers refuse with EBUSY if somebody
            has, and refuse others until it is closed (O_EXCL, `dfl_feature_dev_use_begin`).
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY
    return os.open(path, flags | (os.O_EXCL if alone else 0))
