"""Unpacking gzip from strangers: piece by piece, never more than was allowed.

A gzip of a few bytes may unpack to gigabytes. So whoever looks at one does it in pieces and keeps
what matters; only what was found good by that is unpacked as a whole.
"""

import zlib
from collections.abc import Iterator
from typing import Final

from services.process.errors import InvalidBitstream

_GZIP: Final = 16 + zlib.MAX_WBITS
_STEP: Final = 256 * 1024

MAX_MEMBERS: Final = 4096
"""Of a gzip: each costs time, and 20 bytes are enough for one that holds nothing."""


def unpack(packed: memoryview, *, limit: int) -> Iterator[bytes]:
    """Give what a gzip holds, in pieces of at most 256 KiB.

    Args:
        packed: One gzip member or several, one after the other; zeros after them are padding.
        limit: How many bytes may come out.

    Raises:
        InvalidBitstream: It is no gzip, or not whole, or holds more; checksums are verified.
    """
    position = total = members = 0
    while position < len(packed) and not (members and _is_padding(packed[position:])):
        if members == MAX_MEMBERS:
            raise InvalidBitstream(f"it can't be unpacked: it has more than {members} members")
        members += 1
        member = zlib.decompressobj(_GZIP)
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
            total += len(out)
            if total > limit:
                raise InvalidBitstream(f"it unpacks to more than {limit} bytes")
            yield out
        position -= len(member.unused_data)


def _is_padding(rest: memoryview) -> bool:
    return len(rest) <= _STEP and not any(rest)
