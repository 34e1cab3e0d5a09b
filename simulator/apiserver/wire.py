"""JSON as an API server writes it: compact, with Go's escapes.

Core types are written with their keys as they came, custom resources with their keys sorted.
`<`, `>` and `&` are escaped inside strings, as `encoding/json` does; everything else outside ASCII
is written raw (U+0085 too, which clients that split a watch with `str.splitlines` trip over).
"""

from datetime import datetime
from typing import Any, TypeAlias

import msgspec

Json: TypeAlias = dict[str, Any]
"""A decoded JSON object. What it may hold is checked where it is used."""

_SORTED = msgspec.json.Encoder(order="sorted")
_AS_IS = msgspec.json.Encoder()
_ESCAPES = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))


def encode(value: object, *, sort: bool = False) -> bytes:
    """Encode compactly, without a newline."""
    data = (_SORTED if sort else _AS_IS).encode(value)
    for raw, escaped in _ESCAPES:
        data = data.replace(raw, escaped)
    return data


def decode(data: bytes) -> Any:  # noqa: ANN401 - JSON of any kind
    """Decode JSON. Raises msgspec.DecodeError, whose text says what is wrong and where."""
    return msgspec.json.decode(data)


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as `metav1.Time`."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
