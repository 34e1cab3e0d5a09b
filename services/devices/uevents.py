"""What the kernel says when devices come and go: uevents, in its own format and in udev's.

The kernel's is text: `add@/devices/…`, then `KEY=value` pairs, each closed by a NUL (`lib/
kobject_uevent.c`). udev sends the same pairs again behind a binary header: `libudev` and a NUL, a
magic number in network order, then where the pairs start and how long they are, in the machine's
order (`src/libsystemd/sd-device/device-monitor.c`); so do test beds for devices.

An event is a hint that a look is worth while, nothing more. Whatever the bytes are, parsing gives
an event or None, in time that grows with their number.
"""

import re
import struct
from dataclasses import dataclass

MAX_MESSAGE = 16 * 1024
"""Bytes that are read of one message: the kernel has 2 KiB of pairs, udev adds some of its own."""

_UDEV = b"libudev\0"
_HEADER = struct.Struct("=8s4sIII")
"""Prefix, magic, length of the whole header, offset and length of the pairs."""
_MAGIC = bytes.fromhex("feedcafe")

_WANTED = (b"ACTION=", b"DEVPATH=", b"SUBSYSTEM=")
"""The pairs that matter: a busy host sends hundreds of events a second, of which none is ours."""

_SUBSYSTEMS = frozenset({"fpga", "fpga_region", "fpga_manager", "fpga_bridge", "dfl", "pci"})
_HINT = re.compile(rb"SUBSYSTEM=(?:fpga|dfl|pci|platform)")
"""What a message about a card has in it, as a start of it at least."""
_FEATURE = re.compile(r"(?:dfl|intel-fpga|region)[^/]*")
"""How the parts of a card are named that are platform devices: `dfl-port.0`, `intel-fpga-fme.1`."""


@dataclass(frozen=True, slots=True)
class Uevent:
    """Something happened to a device.

    Args:
        action: `add`, `remove`, `change`, `bind`, `unbind` or another word of the kernel's.
        devpath: The device's folder below `/sys`.
        subsystem: What it belongs to, such as `pci`; empty if nothing says.
    """

    action: str
    devpath: str
    subsystem: str = ""


def may_matter(message: bytes) -> bool:
    """Whether a message is worth parsing: of the many on a busy host, hardly any is.

    Args:
        message: One datagram, in either format.
    """
    return _HINT.search(message) is not None


def parse(message: bytes) -> Uevent | None:
    """The event in a message.

    Args:
        message: One datagram of the kernel's or of udev's.

    Returns:
        None for a message that is neither.
    """
    pairs = _udev_pairs(message) if message.startswith(_UDEV) else _kernel_pairs(message)
    wanted = [pair for pair in pairs.split(b"\0") if pair.startswith(_WANTED)]
    found = dict(pair.decode("utf-8", "replace").split("=", 1) for pair in wanted)
    action, devpath = found.get("ACTION", ""), found.get("DEVPATH", "")
    if not action or not devpath.startswith("/"):
        return None
    return Uevent(action, devpath, found.get("SUBSYSTEM", ""))


def is_relevant(event: Uevent) -> bool:
    """Whether an event may be about a card or a part of one, whatever happened to it."""
    if event.subsystem == "platform":
        return _FEATURE.fullmatch(event.devpath.rpartition("/")[2]) is not None
    return event.subsystem in _SUBSYSTEMS


def _kernel_pairs(message: bytes) -> bytes:
    summary, _, pairs = message.partition(b"\0")
    return pairs if b"@/" in summary else b""


def _udev_pairs(message: bytes) -> bytes:
    if len(message) < _HEADER.size:
        return b""
    _, magic, header, offset, length = _HEADER.unpack_from(message)
    if magic != _MAGIC or not _HEADER.size <= header <= offset:
        return b""
    return message[offset : offset + length]
