"""From the bytes of a file to a bitstream."""

from services.bitstreams.aocx import parse_aocx
from services.bitstreams.elf import is_elf
from services.bitstreams.gbs import is_gbs, parse_gbs
from services.bitstreams.model import Bitstream
from services.process.errors import InvalidBitstream

_GZIP = b"\x1f\x8b"


def parse(data: bytes | memoryview) -> Bitstream:
    """Read all bytes of a GBS or an AOCX."""
    if is_gbs(data):
        return parse_gbs(data)
    if is_elf(data):
        return parse_aocx(data)
    first = bytes(data[:4])
    if not first:
        what = "it is empty"
    elif first.startswith(_GZIP):
        what = "it is packed with gzip, so unpack it first"
    else:
        what = f"it starts with {first.hex(' ')}"
    raise InvalidBitstream(f"it is neither a GBS nor an AOCX: {what}")
