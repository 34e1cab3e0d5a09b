"""Bent bitstreams against the parser: each is refused in words, or is what it says it is."""

import gzip
import struct
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from services.bitstreams.model import BitstreamKind
from services.bitstreams.storage import parse
from services.process.errors import InvalidBitstream
from simulator.bitstreams import OPENCL_AFU, aocx_of, gbs_metadata, gbs_of, make_aocx, make_gbs
from tests.support import soaking

INTERFACE = "ce48969398f05f33946d560708be108a"
AFU = "d8424dc4a4a3c413f89e433683f9040b"
PROGRAM = "0123456789abcdef0123456789abcdef01234567"
EXAMPLES = 100_000 if soaking() else 300
NUMBERS = (0, 1, 63, 64, 4095, 0xFF00, 0xFFFF, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**64, 1e308, "", "auto-300", "nan", "9" * 100, [], {}, [[]] * 50),
    *("\0", "\ud7ff", AFU, AFU.upper(), "../" * 10, "x" * 3000),
)


@st.composite
def metadata(draw: st.DrawFn) -> bytes:
    """A GBS with an odd value in its metadata."""
    made = gbs_metadata(INTERFACE, AFU)
    image = made["afu-image"]
    image |= {"clock-frequency-high": 300, "clock-frequency-low": "150.5"}
    target = draw(st.sampled_from([made, image, image["accelerator-clusters"][0]]))
    target[draw(st.sampled_from([*target, "unknown"]))] = draw(st.sampled_from(VALUES))
    return gbs_of(made, b"raw")


@st.composite
def bent(draw: st.DrawFn, files: st.SearchStrategy[bytes]) -> bytes:
    """A file with some bytes or numbers changed, or its end cut off."""
    content = bytearray(draw(files))
    for _ in range(draw(st.integers(0, 4))):
        form = draw(st.sampled_from(["<B", "<H", "<I", "<Q"]))
        size = struct.calcsize(form)
        at = draw(st.integers(0, len(content) - size))
        struct.pack_into(form, content, at, draw(st.sampled_from(NUMBERS)) % 2 ** (8 * size))
    is_cut = draw(st.sampled_from([False, False, False, True]))
    return bytes(content[: draw(st.integers(0, len(content)))] if is_cut else content)


GBS = st.just(make_gbs(INTERFACE, AFU, b"r" * 300)) | metadata()
AOCX = st.just(make_aocx(INTERFACE, PROGRAM))
INNER = bent(GBS).map(gzip.compress) | bent(GBS.map(gzip.compress))


@pytest.mark.timeout(0)
@given(bent(GBS) | bent(AOCX) | INNER.map(lambda packed: aocx_of(PROGRAM, packed)))
@settings(max_examples=EXAMPLES)
def test_no_bent_bitstream_crashes_the_parser(data: bytes) -> None:
    try:
        found = parse(data)
    except InvalidBitstream as error:
        reason = str(error)
    else:
        reason = ""
        assert len(found.raw()) == found.size > 0
        assert found.kind is not BitstreamKind.GBS or data.endswith(found.raw())
        for text in (found.interface_id, found.metadata.afu_id):
            assert len(bytes.fromhex(text)) == 16
    event("refused" if reason else "parsed")
    assert len(reason) <= 1000
    assert not reason or reason.isprintable()


def test_a_bomb_is_refused_without_being_unpacked_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 2**25
    monkeypatch.setattr("services.bitstreams.aocx.MAX_FILE", limit)
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    parts = [make_gbs(INTERFACE, OPENCL_AFU), *[bytes(2**22)] * 9]
    packed = b"".join(packer.compress(each) + packer.flush(zlib.Z_FULL_FLUSH) for each in parts)
    data = aocx_of(PROGRAM, packed)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBitstream, match="unpacks to more than"):
            parse(data)
        assert tracemalloc.get_traced_memory()[1] < limit / 4
    finally:
        tracemalloc.stop()
