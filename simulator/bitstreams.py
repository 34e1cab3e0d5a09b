"""Synthetic bitstreams: GBS and AOCX files as the vendor's tools would write them, with chosen ids.

Their payload is meaningless; everything around it is as in real files.
"""

import gzip
import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

GBS_MAGIC: Final = struct.pack("<QQ", 0x414750466E6F6558, 0x31303076534247B7)
OPENCL_AFU: Final = "18b79ffa2ee54aa096ef4230dafacb5f"

_ELF: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_PROGBITS, _STRTAB = 1, 3


def gbs_metadata(interface_id: str, afu_id: str, *, name: str = "synthetic") -> dict[str, Any]:
    """The metadata of a GBS, to be changed before `gbs_of` writes it."""
    return {
        "version": 640,
        "platform-name": "DCP",
        "afu-image": {
            "interface-uuid": interface_id,
            "magic-no": 488605312,
            "power": 0,
            "accelerator-clusters": [
                {"name": name, "total-contexts": 1, "accelerator-type-uuid": afu_id}
            ],
        },
    }


def gbs_of(metadata: Mapping[str, Any], raw: bytes) -> bytes:
    text = json.dumps(metadata).encode()
    return GBS_MAGIC + struct.pack("<I", len(text)) + text + raw


def make_gbs(interface_id: str, afu_id: str, raw: bytes = b"raw bitstream") -> bytes:
    """A GBS of a function for regions with an interface id."""
    return gbs_of(gbs_metadata(interface_id, afu_id), raw)


def make_aocx(interface_id: str, program_id: str, raw: bytes = b"raw bitstream") -> bytes:
    """An AOCX of an OpenCL program for regions with an interface id."""
    return aocx_of(program_id, gzip.compress(make_gbs(interface_id, OPENCL_AFU, raw), mtime=0))


def aocx_of(program_id: str, packed: bytes) -> bytes:
    return elf_of(
        [
            (".acl.board", b"pac_a10"),
            (".acl.target", b"fpga"),
            (".acl.version", b"19.4.0.64\0"),
            (".acl.rand_hash", program_id.encode()),
            (".acl.fpga.bin", elf_of([(".acl.gbs.gz", packed)])),
        ]
    )


def elf_of(sections: Iterable[tuple[str, bytes]]) -> bytes:
    """A 64-bit little-endian ELF file with these sections and a table of their names."""
    body, headers, names = bytearray(), [_SECTION.pack(*[0] * 10)], bytearray(b"\0")
    listed = list(sections)
    for name, content in [*listed, (".shstrtab", b"")]:
        at = len(names)
        names += name.encode() + b"\0"
        last = len(headers) > len(listed)
        data, kind = (bytes(names), _STRTAB) if last else (content, _PROGBITS)
        headers.append(_SECTION.pack(at, kind, 0, 0, _ELF.size + len(body), len(data), 0, 0, 1, 0))
        body += data
    start = _ELF.size + len(body)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    count = len(headers)
    head = _ELF.pack(ident, 2, 0x3E, 1, 0, 0, start, 0, 64, 56, 0, 64, count, count - 1)
    return head + bytes(body) + b"".join(headers)
