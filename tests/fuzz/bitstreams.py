"""Bent GBS and AOCX files, each a function of a seed and a number: any can be had again."""

import gzip
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from services.bitstreams.model import Bitstream, BitstreamKind
from services.bitstreams.parse import parse
from services.process.errors import InvalidBitstream
from simulator.bitstreams import (
    GBS_MAGIC,
    OPENCL_AFU,
    aocx_of,
    elf_of,
    gbs_metadata,
    gbs_of,
    make_aocx,
    make_gbs,
)

INTERFACE: Final = "ce48969398f05f33946d560708be108a"
AFU: Final = "d8424dc4a4a3c413f89e433683f9040b"
PROGRAM: Final = "0123456789abcdef0123456789abcdef01234567"
MAX_TEXT: Final = 1000

EDGES: Final = (
    *(0, 1, 2, 63, 64, 255, 4095, 4096, 0xFF00, 0xFFFF),
    *(2**31, 2**32 - 1, 2**63, 2**64 - 1),
)
VALUES: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 2**64, 10**30, 1e308, "", "auto", "auto-300", "nan", "9" * 100, [], {},
    [[]] * 50, "\0", "\ud7ff", AFU, AFU.upper(), "../" * 10, "x" * 3000,
)  # fmt: skip


def make_input(seed: int, number: int) -> bytes:
    chance = random.Random(f"{seed}/{number}")  # noqa: S311 - to be repeated, not to be secret
    data = chance.choice(MAKERS)(chance)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        data = chance.choice(BENDERS)(chance, data)
    return data


def bomb(size: int) -> bytes:
    """A small AOCX whose GBS unpacks to more than a size."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)

    def pack(content: bytes) -> bytes:
        return packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)

    start, zeros = pack(make_gbs(INTERFACE, OPENCL_AFU)), pack(bytes(2**22))
    return aocx_of(PROGRAM, start + zeros * (size // 2**22 + 1))


def _gbs(chance: random.Random) -> bytes:
    return make_gbs(INTERFACE, AFU, chance.randbytes(chance.choice((0, 1, 50, 3000))))


def _bent_metadata(chance: random.Random) -> bytes:
    metadata = gbs_metadata(INTERFACE, AFU)
    image = metadata["afu-image"]
    image |= {"clock-frequency-high": 300, "clock-frequency-low": "150.5"}
    target = chance.choice((metadata, image, image["accelerator-clusters"][0]))
    key = chance.choice([*target, "unknown"])
    if chance.random() < 0.2:
        target.pop(key, None)
    else:
        target[key] = chance.choice(VALUES)
    return gbs_of(metadata, b"raw")


def _aocx(chance: random.Random) -> bytes:
    return make_aocx(INTERFACE, PROGRAM, chance.randbytes(chance.choice((1, 50, 3000))))


def _aocx_around_bent_gbs(chance: random.Random) -> bytes:
    inner = chance.choice((_gbs, _bent_metadata))(chance)
    inner = chance.choice(BENDERS)(chance, inner) if chance.random() < 0.5 else inner
    return aocx_of(PROGRAM, gzip.compress(inner, 1, mtime=0))


def _aocx_around_bent_gzip(chance: random.Random) -> bytes:
    packed = gzip.compress(_gbs(chance), 1, mtime=0)
    return aocx_of(PROGRAM, chance.choice(BENDERS)(chance, packed))


def _bent_elf_header(chance: random.Random) -> bytes:
    data = bytearray(_aocx(chance))
    (headers,) = struct.unpack_from("<Q", data, 40)
    for _ in range(chance.randrange(1, 4)):
        start = chance.choice((0, headers + 64 * chance.randrange(7)))
        places = ((0, "<I"), (4, "<I"), (8, "<Q"), (24, "<Q"), (32, "<Q"), (40, "<Q"))
        offset, form = chance.choice((*places, (58, "<H"), (60, "<H"), (62, "<H")))
        value = chance.choice(EDGES) % 2 ** (8 * struct.calcsize(form))
        struct.pack_into(form, data, min(start + offset, len(data) - 8), value)
    return bytes(data)


def _sections(chance: random.Random) -> bytes:
    names = (
        *(".acl.rand_hash", ".acl.fpga.bin", ".acl.gbs.gz", ".acl.target"),
        *("", "." * 300, ".text"),
    )
    listed = [
        (chance.choice(names), chance.choice((b"", PROGRAM.encode(), chance.randbytes(40))))
        for _ in range(chance.choice((0, 1, 5, 600)))
    ]
    return elf_of(listed)


def _rubbish(chance: random.Random) -> bytes:
    start = chance.choice((b"", GBS_MAGIC, b"\x7fELF", b"\x7fELF\x02\x01\x01", b"\x1f\x8b"))
    return start + chance.randbytes(chance.choice((0, 1, 30, 500)))


def _flip(chance: random.Random, data: bytes) -> bytes:
    bent = bytearray(data)
    for _ in range(min(len(bent), chance.choice((1, 1, 2, 8)))):
        bent[chance.randrange(len(bent))] = chance.choice((0, 0xFF, chance.randrange(256)))
    return bytes(bent)


def _cut(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _splice(chance: random.Random, data: bytes) -> bytes:
    at, length = chance.randrange(len(data) + 1), chance.choice((0, 1, 16, 200))
    return data[:at] + data[: chance.randrange(len(data) + 1)][-300:] + data[at + length :]


def _number(chance: random.Random, data: bytes) -> bytes:
    form = chance.choice(("<H", "<I", "<Q", ">I"))
    size = struct.calcsize(form)
    if len(data) < size:
        return data
    bent = bytearray(data)
    where = chance.randrange(min(len(data), 4200) - size + 1)
    struct.pack_into(form, bent, where, chance.choice(EDGES) % 2 ** (8 * size))
    return bytes(bent)


MAKERS: Final[Sequence[Callable[[random.Random], bytes]]] = (
    *(_gbs, _bent_metadata, _aocx, _aocx_around_bent_gbs, _aocx_around_bent_gzip),
    *(_bent_elf_header, _sections, _rubbish),
)
BENDERS: Final[Sequence[Callable[[random.Random, bytes], bytes]]] = (_flip, _cut, _splice, _number)


def judge(data: bytes) -> str:
    """The outcome of one input: a kind of bitstream that holds what it says, or `refused`."""
    try:
        found = parse(data)
    except InvalidBitstream as error:
        text = str(error)
        assert 0 < len(text) <= MAX_TEXT, f"a reason of {len(text)} characters"
        assert text.isprintable(), f"a reason that isn't printable: {text!r}"
        return "refused"
    _check(found, data)
    return str(found.kind)


def _check(found: Bitstream, data: bytes) -> None:
    raw = found.raw()
    assert len(raw) == found.size > 0
    for text, length in ((found.interface_id, 32), (found.metadata.afu_id, 32)):
        assert len(text) == length, text
        assert int(text, 16) >= 0
    if found.kind is BitstreamKind.GBS:
        assert data.endswith(raw)
    else:
        assert len(found.function_id) == 40
