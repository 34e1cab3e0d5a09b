"""Kubernetes quantities, read as counts of devices.

The grammar is that of ``resource.Quantity``: a signed decimal number and a suffix, which is one
of ``n u m k M G T P E``, ``Ki Mi Gi Ti Pi Ei``, or an exponent such as ``e3``.
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
Devices are counted, so ``2``, ``2000m``, ``0.002k`` and ``2e0`` are the same, and ``1500m`` is
invalid. All arithmetic is on integers of at most about 80 digits, whatever the text: exponents and
lengths are checked before anything is multiplied.
"""

import math
import re

from services.process.errors import InvalidQuantity
from services.process.text import quote

MAX_COUNT = 2**63 - 1
"""The largest quantity that Kubernetes stores."""

_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT_DIGITS = 9
_HUGE = 10**18  # more than the digits of any text could make up for
_MAGNITUDE = 19  # decimal digits of MAX_COUNT
_BINARY_REACH = max(_BINARY.values())  # how many decimal places a binary suffix can make whole


def parse_count(value: str | float) -> int:
    """Return the number of units that a quantity requests.

    Args:
        value: the quantity as JSON holds it: a string, or a number.

    Returns:
        0 to `MAX_COUNT`.

    Raises:
        InvalidQuantity: it is no quantity, negative, not whole, or too large for Kubernetes.
    """
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, bool):
        raise InvalidQuantity("a boolean is not a quantity")
    if isinstance(value, int):
        return _checked(value, _shown(value))
    return _from_float(value)


def _shown(value: int) -> str:
    # str() of an int with thousands of digits is slow, and refused from 4300 digits on.
    return str(value) if abs(value) <= MAX_COUNT else "a number of more than 19 digits"


def _checked(count: int, shown: str) -> int:
    if count < 0:
        raise InvalidQuantity(f"{shown} is negative")
    if count > MAX_COUNT:
        raise InvalidQuantity(f"{shown} is larger than any Kubernetes quantity")
    return count


def _from_float(value: float) -> int:
    if not math.isfinite(value):  # no JSON, but YAML
        raise InvalidQuantity(f"{value} is not a quantity")
    if not value.is_integer():
        raise InvalidQuantity(f"{value} is not a whole number of devices")
    return _checked(int(value), str(value))


def _from_text(text: str) -> int:
    match = _FORM.fullmatch(text)
    if not match or not (match["whole"] or match["part"]):
        raise InvalidQuantity(f"{quote(text)} is not a quantity")
    part = match["part"] or ""
    digits = (match["whole"] + part).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return 0
    if match["sign"] == "-":
        raise InvalidQuantity(f"{quote(text)} is negative")
    suffix = match["suffix"]
    power = _exponent(match["exponent"]) + _DECIMAL.get(suffix, 0)
    power += len(digits) - len(significant) - len(part)
    return _scaled(significant, power, _BINARY.get(suffix, 0), quote(text))


def _exponent(text: str | None) -> int:
    """Return the exponent; one with too many digits counts as `_HUGE`."""
    if text is None:
        return 0
    digits = text.lstrip("+-").lstrip("0")
    size = int(digits or 0) if len(digits) <= _EXPONENT_DIGITS else _HUGE
    return -size if text.startswith("-") else size


def _scaled(significant: str, power: int, binary: int, shown: str) -> int:
    """Return digits x 10^power x 2^binary; the digits start and end with another than 0."""
    if len(significant) + power > _MAGNITUDE:
        raise InvalidQuantity(f"{shown} is larger than any Kubernetes quantity")
    # No factor 10 is left in the digits: of the 2s and 5s that a negative power divides by, at
    # least one kind must come from the binary suffix, which has 2s only.
    if power >= -_BINARY_REACH:
        scaled = int(significant) * 10 ** max(power, 0) * 2**binary
        count, rest = divmod(scaled, 10 ** max(-power, 0))
        if not rest:
            return _checked(count, shown)
    raise InvalidQuantity(f"{shown} is not a whole number of devices")
