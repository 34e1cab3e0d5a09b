"""From the bytes of a file to a bitstream."""

from services.bitstreams.aocx import parse_aocx
from services.bitstreams.elf import is_elf
from services.bitstreams.gbs import is_gbs, parse_gbs
from services.bitstreams.model import Bitstream
from services.process.errors import InvalidBitstream


def parse(data: bytes | memoryview) -> Bitstream:
    """Read all bytes of a GBS or an AOCX."""
    if is_gbs(data):
        return parse_gbs(data)
    if is_elf(data):
        return parse_aocx(data)
    first = bytes(data[:4]).hex(" ") or "nothing"
    raise InvalidBitstream(f"it is neither a GBS nor an AOCX: it starts with {first}")
