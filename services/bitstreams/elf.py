"""Sections of untrusted ELF files (System V ABI, chapter 4): own limits for the contents."""

import io
from typing import Any, Final

from services.process.errors import InvalidBitstream
from services.process.text import quote

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
