"""What a plain scalar of YAML means in a manifest, as kubectl takes it.

Neither YAML 1.1 nor 1.2: words of 1.1 are true and false, an int may be octal, but nothing counts
to base 60, and `=` is no value (sigs.k8s.io/yaml, `goyaml.v2/resolve.go`). What looks like a date
is a text here: where a pod holds one, kubectl's way through JSON makes it a text again.
"""

import math
import re
from typing import Final, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
NON_FINITE: Final = frozenset(
    sign + word
    for word in (".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN")
    for sign in (("", "+", "-") if word[1] in "iI" else ("",))
)
"""What JSON can't say, and kubectl therefore doesn't take."""

_BOOLS: Final = {
    spelling: word in {"y", "yes", "true", "on"}
    for word in ("y", "yes", "true", "on", "n", "no", "false", "off")
    for spelling in (word, word.capitalize(), word.upper())
}
_INT = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASES: Final = {"0x": 16, "0b": 2, "0o": 8}
_LONGEST_INT: Final = 70


def typed(text: str) -> Scalar:
    """Return what a plain scalar means, itself if it is a text; `NON_FINITE` stay texts."""
    if text in NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text if text[0] == "." else text.replace("_", "")
    number = _int(digits)
    if number is not None:
        return number
    if _FLOAT.fullmatch(digits) and math.isfinite(value := float(digits)):
        return value
    return text


def _int(digits: str) -> int | None:
    """Return an int of at most 64 bits; a longer one is a float, or a text."""
    match = _INT.fullmatch(digits) if len(digits) <= _LONGEST_INT else None
    if match is None:
        return None
    sign, body = match.groups()
    base = _BASES.get(body[:2].lower())
    if base is not None:
        value = int(body[2:], base)
    else:
        value = int(body, 8 if body.startswith("0") else 10)
    value = -value if sign == "-" else value
    return value if -(2**63) <= value < 2**64 else None
