"""A bitstream, whatever file it came in.

A file is either a GBS ("green bitstream") or an AOCX, an OpenCL program with a GBS inside. Both are
untrusted: no length in them is believed, and nothing grows beyond `MAX_FILE`.
"""

import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from services.process.errors import InvalidBitstream

MAX_FILE = 256 * 1024 * 1024
"""Bytes of a bitstream file, and of what an AOCX unpacks to; the largest known cards need 70 MB."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_STEP: Final = 256 * 1024


class BitstreamKind(StrEnum):
    """The two kinds of file, by their suffix."""

    GBS = "gbs"
    AOCX = "aocx"


@dataclass(frozen=True, slots=True)
class UserClock:
    """The two clocks of a function, in MHz."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.high:g}/{self.low:g} MHz"


@dataclass(frozen=True, slots=True)
class BitstreamMetadata:
    """The metadata of a GBS."""

    interface_id: str
    """Canonical interface id of the regions that it fits, 32 hex digits."""
    afu_id: str
    """Canonical id that the port shows once it is programmed, 32 hex digits."""
    name: str = ""
    platform: str = ""
    version: int = 0
    power: float = 0
    """Watts that the function takes at most, 0 if unspecified."""
    clock_high: float | None = None
    """MHz of the user clock."""
    clock_low: float | None = None
    """MHz of the user clock's slower half."""

    @property
    def clock(self) -> UserClock | None:
        """The clocks that it asks for; None if it specifies neither."""
        if not self.clock_high and not self.clock_low:
            return None
        low = self.clock_low or (self.clock_high or 0) / 2
        return UserClock(low=low, high=self.clock_high or 2 * low)


@dataclass(frozen=True, slots=True)
class OpenCl:
    """The facts in an AOCX besides its GBS."""

    program_id: str
    """Its unique id (`.acl.rand_hash`), 40 hex digits."""
    board: str = ""
    """The board package it was compiled for."""
    target: str = ""
    """`fpga`, or an emulator."""
    version: str = ""
    """Version of the compiler."""


@dataclass(frozen=True, slots=True)
class Bitstream:
    """A bitstream that was read completely."""

    metadata: BitstreamMetadata
    body: memoryview
    """The GBS; in an AOCX a gzip of it."""
    start: int
    """Where the raw bitstream starts in the GBS."""
    size: int
    """Bytes of the raw bitstream."""
    opencl: OpenCl | None = None
    """What the AOCX says, if it came in one."""

    def raw(self) -> "array[int]":
        """The image for the FPGA: all that follows the metadata, the only copy."""
        raw = array("B")  # which knows the address of its bytes; the driver needs it
        if self.opencl is None:
            raw.frombytes(self.body[self.start :])
            return raw
        skipped = self.start
        for piece in unpack(self.body, limit=self.start + self.size):
            raw.frombytes(memoryview(piece)[skipped:])
            skipped = max(0, skipped - len(piece))
        return raw

    @property
    def memory(self) -> int:
        """Bytes in memory while it is programmed: its whole file, and what `raw` gives."""
        return memoryview(self.body.obj).nbytes + self.size

    @property
    def kind(self) -> BitstreamKind:
        """The kind of file that it came in."""
        return BitstreamKind.GBS if self.opencl is None else BitstreamKind.AOCX

    @property
    def interface_id(self) -> str:
        """Canonical interface id of the regions that it fits."""
        return self.metadata.interface_id

    @property
    def function_id(self) -> str:
        """The id that mappings name: a GBS's AFU id, an AOCX's program id."""
        return self.metadata.afu_id if self.opencl is None else self.opencl.program_id


def unpack(packed: memoryview, *, limit: int) -> Iterator[bytes]:
    """The content of a gzip of one member, in pieces of at most 256 KiB and with its checksum."""
    member, position, total = zlib.decompressobj(_GZIP), 0, 0
    while not member.eof:
        piece: bytes | memoryview = member.unconsumed_tail
        if not piece:
            piece = packed[position : position + _STEP]
            position += len(piece)
        if not piece:
            raise InvalidBitstream("it can't be unpacked: it is cut off")
        try:
            out = member.decompress(piece, _STEP)
        except zlib.error as error:
            raise InvalidBitstream(f"it can't be unpacked: {error}") from error
        # A gzip of a few bytes may unpack to gigabytes.
        total += len(out)
        if total > limit:
            raise InvalidBitstream(f"it unpacks to more than {limit} bytes")
        yield out
    if member.unused_data or position < len(packed):
        raise InvalidBitstream("it can't be unpacked: something follows its end")
