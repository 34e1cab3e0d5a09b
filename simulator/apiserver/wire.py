"""JSON as an API server writes it: compact, with Go's escapes.

Core types are written with their keys as they came, custom resources with their keys sorted.
`<`, `>`, `&`, U+2028 and U+2029 are escaped inside strings, as `encoding/json` does; everything
else outside ASCII is written raw (U+0085 too, which clients that split a watch with
`str.splitlines` trip over).
"""

from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = dict[str, Any]
"""A decoded JSON object. What it may hold is checked where it is used."""

_SORTED = msgspec.json.Encoder(order="sorted")
_AS_IS = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()
_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def escape(data: bytes) -> bytes:
    """The same JSON with Go's HTML escapes (these characters only stand inside strings)."""
    for raw, escaped in _ESCAPES:
        if raw in data:
            data = data.replace(raw, escaped)
    return data


def encode(value: object, *, sort: bool = False) -> bytes:
    """Encode compactly, without a newline."""
    return escape((_SORTED if sort else _AS_IS).encode(value))


def decode(data: bytes) -> Any:  # noqa: ANN401 - JSON of any kind
    """Decode JSON. Raises msgspec.DecodeError, whose text says what is wrong and where."""
    return _DECODER.decode(data)
