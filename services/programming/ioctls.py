"""The ioctls of both drivers: their numbers, their structures, and how they are made.

Numbers and structures are those of `linux/fpga-dfl.h` and of the out-of-tree driver's
`intel-fpga.h`: little endian, naturally aligned, `argsz` the structure's own size. Each function
takes an open descriptor of the right node and raises `OSError` as the kernel does. A
`SimulatedNode` is a descriptor too: its calls go to whoever stands in for the driver
(`services.programming.simulated`).
"""

import fcntl
import os
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.programming import simulated

_ARGUMENTS: Final = struct.Struct("<4I")


@dataclass(frozen=True, slots=True)
class Calls:
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


CALLS: Final = {
    "dfl": Calls(
        *(0xB600, 0xB640, 0xB641, 0xB642, 0xB680, 0x4004B681, 0x4004B682),
        info_form=_ARGUMENTS,
        program_form=struct.Struct("<4IQ"),
        move_form=struct.Struct("<I"),
    ),
    "opae": Calls(
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


class SimulatedNode(int):
    """A descriptor of a file below an injected root, whose driver is simulated.

    Attributes:
        path: The file.
    """

    path: Path

    @classmethod
    def of(cls, descriptor: int, path: Path) -> "SimulatedNode":
        """A descriptor, and what it is open on."""
        node = cls(descriptor)
        node.path = path
        return node


def _ioctl(
    descriptor: int, request: int, argument: bytearray | bytes, data: "array[int] | None" = None
) -> None:
    """Makes a call whose argument is a structure; a bytearray holds afterwards what came back."""
    if not isinstance(descriptor, SimulatedNode):
        fcntl.ioctl(descriptor, request, argument)
        return
    answer = simulated.call(descriptor.path, request, bytes(argument), memoryview(data or b""))
    if isinstance(argument, bytearray):
        argument[:] = answer


def api_version(descriptor: int, calls: Calls) -> int:
    """The version of the driver's interface; there is only 0 so far."""
    if isinstance(descriptor, SimulatedNode):
        return 0
    return fcntl.ioctl(descriptor, calls.version, 0)


def reset_port(descriptor: int, calls: Calls) -> None:
    """Resets a port and the function in it."""
    if isinstance(descriptor, SimulatedNode):
        _ioctl(descriptor, calls.reset, b"")
    else:
        fcntl.ioctl(descriptor, calls.reset, 0)


def port_info(descriptor: int, calls: Calls) -> PortInfo:
    """What a port has."""
    form = calls.info_form
    argument = bytearray(form.size)
    struct.pack_into("<I", argument, 0, form.size)
    _ioctl(descriptor, calls.info, argument)
    _, flags, *rest = form.unpack(argument)
    if len(rest) == 2:
        return PortInfo(flags, *rest)
    capability, regions, umsgs, irqs = rest
    return PortInfo(flags, regions, umsgs, capability, irqs)


def region_info(descriptor: int, calls: Calls, index: int) -> RegionInfo:
    """What a region of a port's memory is like."""
    argument = bytearray(_REGION.pack(_REGION.size, 0, index, 0, 0, 0))
    _ioctl(descriptor, calls.region, argument)
    _, flags, _, _, size, offset = _REGION.unpack(argument)
    return RegionInfo(index, flags, size, offset)


def program_port(descriptor: int, calls: Calls, port: int, data: "array[int]") -> None:
    """Reconfigures a port; returns when the hardware has, or has not.

    Args:
        descriptor: Of the engine's node.
        calls: Of its driver.
        port: The port's number within its card.
        data: The raw bitstream, an array of bytes.

    Raises:
        ProgrammingFailed: With EIO if the hardware refused.
    """
    # The kernel reads the bitstream from the address in the structure. An array knows the address of
    # its bytes; they stay there while `data` is referred to and nobody changes its length.
    address, size = data.buffer_info()
    argument = bytearray(calls.program_form.size)
    struct.pack_into("<4IQ", argument, 0, len(argument), 0, port, size, address)
    try:
        _ioctl(descriptor, calls.program, argument, data)
    except OSError as error:
        has_status = len(argument) >= _STATUS_AT + _STATUS.size
        status = _STATUS.unpack_from(argument, _STATUS_AT)[0] if has_status else 0
        raise ProgrammingFailed(error, status) from error


def release_port(descriptor: int, calls: Calls, port: int) -> None:
    """Takes a port from its card's physical function, so that a virtual one can have it."""
    _ioctl(descriptor, calls.release, _moved(calls, port))


def assign_port(descriptor: int, calls: Calls, port: int) -> None:
    """Gives a port back to its card's physical function."""
    _ioctl(descriptor, calls.assign, _moved(calls, port))


def _moved(calls: Calls, port: int) -> bytes:
    form = calls.move_form
    return form.pack(port) if form.size == 4 else form.pack(form.size, 0, port)


def open_node(path: str | os.PathLike[str], *, alone: bool = False) -> int:
    """Opens a device node for ioctls.

    Args:
        path: The node.
        alone: Whether nobody else may have it open; the drivers refuse with EBUSY if somebody
            has, and refuse others until it is closed (O_EXCL, `dfl_feature_dev_use_begin`).
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY
    return os.open(path, flags | (os.O_EXCL if alone else 0))
