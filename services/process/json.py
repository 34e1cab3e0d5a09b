"""Errors of reading JSON from outside."""

from typing import Final

import msgspec

UNREADABLE: Final = (
    msgspec.MsgspecError,  # no JSON, or of another shape
    ValueError,  # a text that is not UTF-8
    RecursionError,  # nested deeper than msgspec follows
)
