"""Plain scalars of YAML 1.1, as Go reads them (sigs.k8s.io/yaml, which kubectl uses).

Tried with kubectl 1.32.
"""

import math
import re
from typing import Final, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

_BOOLEANS: Final = {
    word: value
    for value, words in ((True, "true yes on y"), (False, "false no off n"))
    for each in words.split()
    for word in (each, each.title(), each.upper())
}
_INTEGER: Final = re.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))"
)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST: Final = 400
"""Characters of a number; longer ones are texts."""


def typed(text: str) -> Scalar:
    """The number or boolean that a plain scalar is, otherwise the text."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    digits = text.replace("_", "") if text[0] in "+-.0123456789" else ""
    if len(digits) > _LONGEST:
        return text
    if match := _INTEGER.fullmatch(digits):
        sign, *numbers = match.groups()
        bases = zip(numbers, (16, 2, 8, 10), strict=True)
        value = next(int(f"{sign}{each}", base) for each, base in bases if each)
        if -(2**63) <= value < 2**64:
            return value
    if not _FLOAT.fullmatch(digits) or math.isinf(real := float(digits)):
        return text
    return int(real) if real.is_integer() and abs(real) < 1e21 else real  # as Go writes JSON
