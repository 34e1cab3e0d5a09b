"""Resource quantities in the form in which an API server writes them back.

A quantity is read and written again on its way through a real API server, so a webhook never sees
`1000m` or the number 2, but `1` and `"2"`. Rules: apimachinery's `resource.Quantity`.
"""

import re
from fractions import Fraction
from math import ceil

_SHAPE = re.compile(r"^([+-]?)(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3}|[numkMGTPE]|[KMGTPE]i|)$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class NotAQuantity(ValueError):
    """A text that `resource.ParseQuantity` would refuse."""


def parse(value: object) -> Fraction:
    """The exact amount of a quantity (rounded up to nano units, as a real API server does)."""
    return _parse(value)[0]


def nanos(value: object) -> int:
    """The amount in units of 10⁻⁹, for sums (raises NotAQuantity)."""
    return int(parse(value) * 10**9)


def canonical(value: object) -> str:
    """The text that a real API server stores for a quantity (`1000m` → `1`, 2 → `2`)."""
    amount, suffix = _parse(value)
    if suffix in _BINARY and amount.denominator == 1 and abs(amount) >= 1024:
        return _with_largest(amount, {name: 2**power for name, power in _BINARY.items()})
    return _with_largest(amount, {name: Fraction(10) ** power for name, power in _DECIMAL.items()})


def _parse(value: object) -> tuple[Fraction, str]:
    text = str(value) if isinstance(value, int | float) else value
    if isinstance(value, bool) or not isinstance(text, str) or not (found := _SHAPE.match(text)):
        raise NotAQuantity(
            "quantities must match the regular expression"
            " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, digits, suffix = found.groups()
    amount = Fraction(digits) * _factor(suffix) * (-1 if sign == "-" else 1)
    nanos = amount * 10**9
    return Fraction(ceil(nanos) if nanos.denominator != 1 else nanos, 10**9), suffix


def _factor(suffix: str) -> Fraction:
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix]
    if suffix in _BINARY:
        return Fraction(2 ** _BINARY[suffix])
    return Fraction(10) ** int(suffix[1:])


def _with_largest(amount: Fraction, units: dict[str, Fraction] | dict[str, int]) -> str:
    if amount == 0:
        return "0"
    fitting = [
        (Fraction(size), name) for name, size in units.items() if (amount / size).denominator == 1
    ]
    size, name = max(fitting)
    return f"{amount / size}{name}"
