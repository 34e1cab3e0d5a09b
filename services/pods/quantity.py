"""Kubernetes quantities, read as counts of devices.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
``2``, ``2000m``, ``0.002k`` and ``2e0`` are the same, and ``1500m`` is invalid.
"""

import re
from fractions import Fraction

from services.process.errors import InvalidQuantity
from services.process.text import quote

MAX_COUNT = 2**63 - 1
"""The largest quantity that Kubernetes stores."""

_LONGEST = 128
"""Characters of a quantity. The API server writes them with about 20."""
_FORM = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)"
)
_SCALE: dict[str | None, Fraction] = {
    None: Fraction(1),
    **{suffix: Fraction(1, 1000**n) for n, suffix in enumerate("mun", 1)},
    **{suffix: Fraction(1000**n) for n, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**n) for n, suffix in enumerate("KMGTPE", 1)},
}


def parse_amount(text: str) -> Fraction:
    """Return the amount of a quantity (InvalidQuantity if it is none)."""
    # Lengths and exponents are checked before anything is calculated, so no text is slow.
    match = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidQuantity(f"{quote(text)} is not a quantity")
    number = Fraction(match["number"])
    # A larger exponent is more than the digits of such a text could make up for.
    limit = 2 * _LONGEST
    exponent = max(-limit, min(int(match["exponent"] or 0), limit))
    return number * Fraction(10) ** exponent * _SCALE[match["suffix"]]


def parse_count(text: str) -> int:
    """Return the number of units, 0 to `MAX_COUNT`, that a quantity requests.

    Raises:
        InvalidQuantity: it is no quantity, negative, not whole, or too large for Kubernetes.
    """
    if len(text) < 10 and text.isascii() and text.isdecimal():
        return int(text)  # nearly all of them, and much faster
    count = parse_amount(text)
    if count < 0:
        raise InvalidQuantity(f"{quote(text)} is negative")
    if count > MAX_COUNT:
        raise InvalidQuantity(f"{quote(text)} is larger than any Kubernetes quantity")
    if count.denominator != 1:
        raise InvalidQuantity(f"{quote(text)} is not a whole number of devices")
    return count.numerator
