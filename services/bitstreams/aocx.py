"""AOCX, an OpenCL program for FPGAs: an ELF file, in it another one, in that a packed GBS.

The sections `.acl.*` of the outer file are texts, but `.acl.fpga.bin`, which is the inner ELF file;
its section `.acl.gbs.gz` is a gzip of the GBS (`aocl` of the FPGA SDK for OpenCL makes them). The
files are untrusted: their sections (System V ABI, chapter 4) have limits of our own.
"""

import io
import re
from collections.abc import Mapping
from typing import Any, Final

from services.bitstreams.gbs import MAX_START, NOTHING_AFTER, parse_start
from services.bitstreams.model import MAX_FILE, Bitstream, BitstreamMetadata, OpenCl, unpack
from services.process.errors import InvalidBitstream
from services.process.text import plain, quote

MAGIC: Final = b"\x7fELF"

MAX_SECTIONS: Final = 512
"""The most sections that are read; an OpenCL program has about 50."""

_MAX_NAME: Final = 256
_PREFIX: Final = ".acl."
_NO_BITS: Final = "SHT_NOBITS"
_COMPRESSED: Final = 0x800  # SHF_COMPRESSED


def is_elf(data: bytes | memoryview) -> bool:
    """Whether the bytes start as an ELF file does."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def read_sections(data: bytes | memoryview) -> dict[str, memoryview]:
    """The sections whose names begin with `.acl.`, as views of all bytes of the file."""
    # 3 MiB, and a node without OpenCL has no ELF files.
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - see above

    try:
        headers, names_at = _headers(data)
    except (ELFError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        # what pyelftools raises for a broken header is no part of its promises
        raise InvalidBitstream(f"it is not a readable ELF file: {error}") from error
    if names_at >= len(headers):
        raise InvalidBitstream("its sections have no names")
    names = _content(data, headers[names_at], "the table of its sections' names")
    sections: dict[str, memoryview] = {}
    for header in headers:
        name = _name(names, header["sh_name"])
        if not name.startswith(_PREFIX):
            continue
        if name in sections:
            raise InvalidBitstream(f"it has two sections {quote(name)}")
        sections[name] = _content(data, header, f"its section {quote(name)}")
    return sections


def _headers(data: bytes | memoryview) -> tuple[list[Any], int]:
    """The headers of all sections, and the number of the one that holds their names."""
    from elftools.common.utils import struct_parse  # noqa: PLC0415 - as `read_sections`
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - the same

    # pyelftools trusts the file: its section objects follow links without end, unpack without a
    # limit and search names to the end of the file. So only the structures of headers are used.
    stream = io.BytesIO(data)  # of bytes, this copies nothing
    elf = ELFFile(stream)
    count, size, start = elf.num_sections(), elf.header["e_shentsize"], elf.header["e_shoff"]
    if not 1 <= count <= MAX_SECTIONS:
        raise InvalidBitstream(f"it has {count} sections, and a bitstream has 1 to {MAX_SECTIONS}")
    layout = elf.structs.Elf_Shdr
    if size < layout.sizeof():
        raise InvalidBitstream(f"its section headers have {size} bytes, too few for one")
    parsed = [struct_parse(layout, stream, start + number * size) for number in range(count)]
    return parsed, elf.get_shstrndx()


def _name(names: memoryview, offset: int) -> str:
    return bytes(names[offset : offset + _MAX_NAME]).partition(b"\0")[0].decode("ascii", "replace")


def _content(data: bytes | memoryview, header: Any, what: str) -> memoryview:  # noqa: ANN401 - a container of pyelftools's
    if header["sh_type"] == _NO_BITS or header["sh_flags"] & _COMPRESSED:
        raise InvalidBitstream(f"{what} is not there as it should be: empty, or packed")
    start, size = header["sh_offset"], header["sh_size"]
    if start + size > len(data):
        raise InvalidBitstream(
            f"{what} ends at byte {start + size}, and the file at {len(data)}: it is cut off"
        )
    return memoryview(data)[start : start + size]


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
