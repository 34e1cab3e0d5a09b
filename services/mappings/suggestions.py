"""Suggestions for an unknown name: the nearest known name, and a list of known names.

A namespace may have 100,000 names, and a refusal must not take longer for it: the number of names
that are listed and compared is bounded.
"""

from collections.abc import Mapping
from itertools import chain, islice

from services.process.text import listing, plain

LISTED = 8
"""How many names a message lists."""

COMPARED = 512
"""How many names are compared with the requested one, in 5 ms at most."""

_LIKE = 0.5  # share of common pairs of letters above which two names are similar
_LONGEST = 63


def nearest(requested: str, *tables: Mapping[str, object]) -> str | None:
    """Return the name of some tables that is most like `requested` in any case, None if none is."""
    if len(requested) > _LONGEST:
        return None
    pairs = _pairs(requested)
    names = islice(chain(*tables), COMPARED)
    likeness = {name: _likeness(pairs, _pairs(name)) for name in names}
    best = max(likeness, key=likeness.__getitem__, default=None)
    return best if best is not None and likeness[best] >= _LIKE else None


def known_names(known: Mapping[str, object]) -> str:
    """Return the first known names as a list in words; there is at least one."""
    some = sorted(islice(known, COMPARED))[:LISTED]
    return listing([plain(name) for name in some], more=len(known) - len(some))


def _pairs(name: str) -> set[str]:
    """Return the pairs of adjacent letters of a name, its start and end included."""
    framed = f"^{name.lower()}$"
    return {framed[i : i + 2] for i in range(len(framed) - 1)}


def _likeness(one: set[str], other: set[str]) -> float:
    """Return Dice's coefficient: 1 for the same pairs, 0 for none in common."""
    return 2 * len(one & other) / (len(one) + len(other))
