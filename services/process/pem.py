"""PEM texts, which may be bent: their certificates one by one. Pure."""

from collections.abc import Iterator
from typing import Final

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"


def certificate_blocks(text: bytes) -> Iterator[bytes]:
    """The complete blocks of certificates in a text, each as PEM; their contents are unchecked."""
    # The libraries read all of a text or none. The work is linear in the text, which may be full of
    # markers.
    for piece in text.split(_BEGIN)[1:]:
        content, end, _ = piece.partition(_END)
        if end:
            yield _BEGIN + content + end
