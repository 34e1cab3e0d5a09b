"""GBS, the "green bitstream": a small header, metadata as JSON, then what the FPGA takes.

Little endian: the magic number (u64, u64), the metadata's length (u32, 1 to 4095), the metadata,
and the raw bitstream up to the end of the file, as the OPAE tools write it (`packager`).
"""

import math
import re
import struct
from typing import Any, Final

import msgspec

from services.bitstreams.model import Bitstream, BitstreamMetadata
from services.names import CRASHED, check_id
from services.process.errors import InvalidBitstream, InvalidName
from services.process.json import UNREADABLE
from services.process.text import count, quote

MAGIC: Final = struct.pack("<QQ", 0x414750466E6F6558, 0x31303076534247B7)

MAX_METADATA: Final = 4095
"""Bytes of metadata, by the format."""

MAX_START: Final = len(MAGIC) + 4 + MAX_METADATA
"""Bytes at the start of a file that hold everything but the raw bitstream."""

NOTHING_AFTER: Final = "it ends after its metadata: there is no bitstream in it"

_LENGTH: Final = struct.Struct("<I")
_PADDING: Final = b"\0 \t\r\n"
_WHOLE_ID: Final = range(32, 33)
_AUTO: Final = re.compile(r"auto(-[0-9.]+)?", re.IGNORECASE)
_SHOWN: Final = 32
_LARGEST_CLOCK: Final = 10_000.0  # MHz; the user clocks of known cards end at 600
_LARGEST_POWER: Final = 10_000.0  # W


class _Cluster(msgspec.Struct, rename="kebab"):
    accelerator_type_uuid: str
    name: str | None = None


class _Image(msgspec.Struct, rename="kebab"):
    interface_uuid: str
    accelerator_clusters: list[_Cluster]
    power: Any = 0
    clock_frequency_high: Any = None
    clock_frequency_low: Any = None


class _Metadata(msgspec.Struct, rename="kebab"):
    afu_image: _Image
    version: Any = 0
    platform_name: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Metadata)


def is_gbs(data: bytes | memoryview) -> bool:
    """Whether the bytes start as a GBS does."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def parse_gbs(data: bytes | memoryview) -> Bitstream:
    """Read all bytes of a GBS; the result holds a view of them."""
    metadata, start = parse_start(data)
    if len(data) <= start:
        raise InvalidBitstream(NOTHING_AFTER)
    return Bitstream(metadata, memoryview(data), start, len(data) - start)


def parse_start(data: bytes | bytearray | memoryview) -> tuple[BitstreamMetadata, int]:
    """The metadata in the first `MAX_START` bytes of a GBS, and where the raw bitstream starts."""
    head = bytes(data[:MAX_START])
    if not head.startswith(MAGIC):
        raise InvalidBitstream("it doesn't start as a GBS does")
    start = len(MAGIC) + _LENGTH.size
    if len(head) < start:
        raise InvalidBitstream(f"it ends within its header, after {count(len(head), 'byte')}")
    (length,) = _LENGTH.unpack_from(head, len(MAGIC))
    if not 1 <= length <= MAX_METADATA:
        raise InvalidBitstream(
            f"its header says {length} bytes of metadata, and a GBS has 1 to {MAX_METADATA}"
        )
    if len(head) < start + length:
        raise InvalidBitstream(
            f"it ends within its metadata, after {len(head) - start} of {length} bytes"
        )
    return _read_metadata(head[start : start + length]), start + length


def _read_metadata(text: bytes) -> BitstreamMetadata:
    try:
        decoded = _DECODER.decode(text.rstrip(_PADDING))
    except UNREADABLE as error:
        raise InvalidBitstream(f"its metadata can't be read: {error}") from error
    image, clusters = decoded.afu_image, decoded.afu_image.accelerator_clusters
    if len(clusters) != 1:
        raise InvalidBitstream(
            f"its metadata names {len(clusters)} accelerators, and a GBS has exactly one"
        )
    return BitstreamMetadata(
        interface_id=_id(image.interface_uuid, "interface-uuid"),
        afu_id=_id(clusters[0].accelerator_type_uuid, "accelerator-type-uuid"),
        name=clusters[0].name or "",
        platform=decoded.platform_name or "",
        version=int(_number(decoded.version, "version", 2.0**64) or 0),
        power=_number(image.power, "power", _LARGEST_POWER) or 0,
        clock_high=_clock(image.clock_frequency_high, "clock-frequency-high"),
        clock_low=_clock(image.clock_frequency_low, "clock-frequency-low"),
    )


def _id(text: str, key: str) -> str:
    try:
        canonical = check_id(text, what=key, lengths=_WHOLE_ID)
    except InvalidName as error:
        raise InvalidBitstream(
            f"its metadata's {key} {quote(text)} is not 32 hex digits"
        ) from error
    if canonical == CRASHED:
        raise InvalidBitstream(f"its metadata's {key} is all f, which crashed firmware shows")
    return canonical


def _clock(value: object, key: str) -> float | None:
    """MHz, or None where the function leaves it open: nothing, 0, or what a build calls `auto`."""
    if isinstance(value, str) and _AUTO.fullmatch(value.strip()):
        return None
    return _number(value, key, _LARGEST_CLOCK) or None


def _number(value: object, key: str, largest: float) -> float | None:
    """A number that may be written as text; None where there is none."""
    if value is None or value == "":
        return None
    try:
        number = msgspec.convert(value, int | float, strict=False)
    except msgspec.ValidationError:
        number = math.nan
    if not 0 <= number <= largest:
        raise InvalidBitstream(
            f"its metadata's {key} {quote(str(value)[:_SHOWN])} is not a number from 0 to"
            f" {largest:g}"
        )
    return number
