"""Suggestions for an unknown name: the nearest known name, and a list of known names.

A refusal must not take longer where a namespace has 100,000 names.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, islice

from services.process.text import listing, plain

LISTED = 8
"""How many names a message lists."""

COMPARED = 64
"""How many names are compared with the requested one."""

_LIKE = 0.5  # share of common pairs of letters above which two names are similar
_SHORT = 24  # letters up to which all typos are tried, about 80 for each letter
_LONGEST = 63
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-."


def nearest(requested: str, *tables: Mapping[str, object]) -> str | None:
    """Return the name of some tables that `requested` most likely means, None if none is near."""
    if len(requested) > _LONGEST:
        return None
    lower = requested.lower()
    # A single typo is found among any number of names: each is looked up.
    if len(lower) <= _SHORT:
        for known in tables:
            for candidate in _typos(lower):
                if candidate in known:
                    return candidate
    pairs = _pairs(lower)
    names = chain(*[islice(known, COMPARED) for known in tables])
    likeness = {name: _likeness(pairs, _pairs(name)) for name in names}
    best = max(likeness, key=likeness.__getitem__, default=None)
    return best if best is not None and likeness[best] >= _LIKE else None


def known_names(known: Mapping[str, object], prefix: str = "") -> str:
    """Return the first known names as a list in words; there is at least one."""
    some = sorted(islice(known, COMPARED))[:LISTED]
    return listing([plain(f"{prefix}{name}") for name in some], more=len(known) - len(some))


def _pairs(name: str) -> set[str]:
    """Return the pairs of adjacent letters of a name, its start and end included."""
    framed = f"^{name.lower()}$"
    return {framed[i : i + 2] for i in range(len(framed) - 1)}


def _likeness(one: set[str], other: set[str]) -> float:
    """Return Dice's coefficient: 1 for the same pairs, 0 for none in common."""
    return 2 * len(one & other) / (len(one) + len(other))


def _typos(name: str) -> Iterable[str]:
    yield name  # of another case
    cuts = range(len(name) + 1)
    yield from (name[:i] + name[i + 1 :] for i in cuts)  # a letter added
    # Two letters swapped.
    yield from (name[:i] + name[i + 1 : i + 2] + name[i : i + 1] + name[i + 2 :] for i in cuts)
    yield from (name[:i] + c + name[i + 1 :] for i in cuts for c in _LETTERS)  # replaced
    yield from (name[:i] + c + name[i:] for i in cuts for c in _LETTERS)  # missing
