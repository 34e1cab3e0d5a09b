"""AOCX, an OpenCL program for FPGAs: an ELF file, in it another one, in that a packed GBS.

The sections `.acl.*` of the outer file are texts, but `.acl.fpga.bin`, which is the inner ELF file;
its section `.acl.gbs.gz` is a gzip of the GBS (`aocl` of the FPGA SDK for OpenCL makes them).
"""

import re
from collections.abc import Mapping
from typing import Final

from services.bitstreams.elf import read_sections
from services.bitstreams.gbs import MAX_START, NOTHING_AFTER, parse_start
from services.bitstreams.model import MAX_FILE, Bitstream, BitstreamMetadata, OpenCl, unpack
from services.process.errors import InvalidBitstream
from services.process.text import plain, quote

PROGRAM: Final = ".acl.fpga.bin"
PACKED: Final = ".acl.gbs.gz"

_HASH: Final = re.compile(r"[0-9a-f]{40}")
_MAX_TEXT: Final = 4096


def parse_aocx(data: bytes | memoryview) -> Bitstream:
    """Read all bytes of an AOCX and check the GBS in it, without keeping it unpacked."""
    outer = read_sections(data)
    opencl = OpenCl(
        program_id=_program_id(outer),
        board=_text(outer, ".acl.board"),
        target=_text(outer, ".acl.target"),
        version=_text(outer, ".acl.version"),
    )
    if PROGRAM not in outer:
        target = f" (its target is {quote(opencl.target)})" if opencl.target else ""
        raise InvalidBitstream(f"it has no section {PROGRAM}: it is not for an FPGA{target}")
    inner = read_sections(outer[PROGRAM])
    if PACKED not in inner:
        raise InvalidBitstream(f"its {PROGRAM} has no section {PACKED}: it is for another card")
    packed = inner[PACKED]
    try:
        metadata, start, size = _check_packed(packed)
    except InvalidBitstream as error:
        raise InvalidBitstream(f"the GBS in it: {error}") from error
    return Bitstream(metadata, packed, start, size, opencl)


def _check_packed(packed: memoryview) -> tuple[BitstreamMetadata, int, int]:
    """The metadata of a packed GBS, where its raw bitstream starts, and how long it is."""
    # Only the start of it is kept in memory, and it is unpacked further only if that is a GBS's.
    head, total, parsed = bytearray(), 0, None
    for piece in unpack(packed, limit=MAX_FILE):
        total += len(piece)
        head += piece[: MAX_START - len(head)]
        if len(head) == MAX_START and parsed is None:
            parsed = parse_start(head)
    metadata, start = parsed or parse_start(head)
    if total <= start:
        raise InvalidBitstream(NOTHING_AFTER)
    return metadata, start, total - start


def _program_id(outer: Mapping[str, memoryview]) -> str:
    # All OpenCL board packages share the AFU id, so it doesn't distinguish two programs.
    text = _text(outer, ".acl.rand_hash").lower()
    if not _HASH.fullmatch(text):
        raise InvalidBitstream(
            f"its section .acl.rand_hash, which identifies a program, is {quote(text)}, and it"
            " should be 40 hex digits"
        )
    return text


def _text(outer: Mapping[str, memoryview], name: str) -> str:
    content = bytes(outer.get(name, b"")[:_MAX_TEXT])
    return plain(content.decode("utf-8", "replace").strip("\0 \t\r\n"), 256)
