"""JSON that is nested deeper than any decoder follows.

An API server takes 10 000 levels, in fields of an object that nobody here reads, such as
`managedFields`. A decoder gives up on them all the same, though it would only skip them.
"""

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

DEEPEST = 100
"""Levels that are kept; what is read of any object is nested far less."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]')


def decode(decoder: msgspec.json.Decoder[T], data: bytes, *, most: int | None = None) -> T:
    """Return what a decoder makes of JSON, without what is nested too deep for it.

    Args:
        decoder: the decoder.
        data: the JSON.
        most: as for `pruned`.

    Raises:
        msgspec.MsgspecError: it is no JSON, or not what the decoder takes.
        RecursionError: it is no JSON, and nested deep.
        ValueError: as `pruned`; or it is no UTF-8.
    """
    try:
        return decoder.decode(data)
    except RecursionError:
        return decoder.decode(pruned(data, most=most))


def pruned(data: bytes, *, most: int | None = None) -> bytes:
    """Return JSON with null in place of what is nested deeper than `DEEPEST` levels.

    Args:
        data: the JSON.
        most: how many strings and brackets are looked at, at a million or two a second.

    Raises:
        ValueError: it has more of them.
    """
    kept, depth, start = bytearray(), 0, 0
    for number, match in enumerate(_TOKEN.finditer(data)):
        if number == most:
            raise ValueError("it is nested too deep, and too long to look for where")
        token = match[0]
        if token in b"[{":
            depth += 1
            if depth == DEEPEST:
                kept += data[start : match.start()] + b"null"
        elif token in b"]}":
            if depth == DEEPEST:
                start = match.end()
            depth -= 1
    return bytes(kept + data[start:])
