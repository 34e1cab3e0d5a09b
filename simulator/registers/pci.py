"""A PCI function: its configuration space, its BARs, and the messages that reach them.

The messages are those of Linux's `include/uapi/linux/virtio_pcidev.h`, which `virt-pci.c` of User
Mode Linux sends.
"""

import struct
import time
from collections.abc import Mapping
from typing import Final, Protocol

_MESSAGE: Final = struct.Struct("<BBHIQ")
_CFG_READ, _CFG_WRITE, _MMIO_READ, _MMIO_WRITE = 1, 2, 3, 4

_COMMAND, _STATUS, _BARS, _SUBSYSTEM, _CAPABILITIES = 0x04, 0x06, 0x10, 0x2C, 0x34
_HAS_CAPABILITIES: Final = 0x10
_EXPRESS: Final = 0x40
_EXTENDED: Final = 0x100
_BAR_64: Final = 0x4
CLASS: Final = 0x120000
"""Processing accelerator."""


class Registers(Protocol):
    """The registers behind a BAR."""

    def read(self, offset: int, size: int) -> int:
        """The value of a register, or of a part of one."""

    def write(self, offset: int, size: int, value: int) -> None:
        """Write a register, or a part of one."""


class PciFunction:
    """A function in a PCI slot."""

    def __init__(
        self,
        vendor: int,
        device: int,
        subsystem: tuple[int, int],
        bars: Mapping[int, int],
        *,
        extended: bytes = b"",
    ) -> None:
        """Put a function together; `bars` has the size of each BAR, a power of two."""
        self.is_gone = False
        """Whether every read gives ones, as of a card that has fallen off the bus."""
        self.delay = 0.0
        """Seconds that each read of a BAR takes."""
        self._registers: Mapping[int, Registers] = {}
        self._space = bytearray(0x1000)
        self._writable = bytearray(0x1000)
        self._put("<HH", 0, vendor, device)
        self._put("<H", _STATUS, _HAS_CAPABILITIES)
        self._put("<I", 0x08, CLASS << 8 | 1)
        self._put("<HH", _SUBSYSTEM, *subsystem)
        self._put("<B", _CAPABILITIES, _EXPRESS)
        # PCI Express, version 2, a root complex's integrated endpoint: there is no port above it.
        self._put("<BBH", _EXPRESS, 0x10, 0, 0x92)
        self._space[_EXTENDED : _EXTENDED + len(extended)] = extended
        self._put("<H", _COMMAND, 0xFFFF, mask=True)
        for number, size in bars.items():
            self._put("<I", _BARS + 4 * number, _BAR_64)
            self._put("<Q", _BARS + 4 * number, 2**64 - size, mask=True)

    def put_behind(self, registers: Mapping[int, Registers]) -> None:
        """Put registers behind the BARs; nothing else is wrong with the function any more."""
        self._registers = registers
        self.is_gone, self.delay = False, 0.0

    def _put(self, form: str, offset: int, *values: int, mask: bool = False) -> None:
        struct.pack_into(form, self._writable if mask else self._space, offset, *values)

    def answer(self, message: bytes, space: int) -> bytes:
        """Answer a message of the bus."""
        op, bar, _, size, offset = _MESSAGE.unpack_from(message)
        data = message[_MESSAGE.size : _MESSAGE.size + size]
        if op in (_CFG_READ, _MMIO_READ):
            if self.is_gone:
                return b"\xff" * space
            return self._read(op, bar, offset, size)
        if not self.is_gone:
            if op == _CFG_WRITE:
                for at, byte in enumerate(data, offset):
                    kept = self._space[at] & ~self._writable[at]
                    self._space[at] = kept | byte & self._writable[at]
            elif op == _MMIO_WRITE and bar in self._registers:
                self._registers[bar].write(offset, size, int.from_bytes(data, "little"))
        return b""

    def _read(self, op: int, bar: int, offset: int, size: int) -> bytes:
        if op == _CFG_READ:
            return bytes(self._space[offset : offset + size])
        time.sleep(self.delay)
        if bar not in self._registers:
            return b"\xff" * size
        # Programs that copy a BAR read more than a register at once.
        words = []
        for at in range(offset, offset + size, 8):
            width = min(8, offset + size - at)
            words.append(self._registers[bar].read(at, width).to_bytes(width, "little"))
        return b"".join(words)


def vendor_specific(kind: int, content: bytes) -> bytes:
    """A vendor-specific extended capability (VSEC), the only one of a function."""
    return struct.pack("<II", 0x1000B, (8 + len(content)) << 20 | kind) + content
