"""What to tell someone who asked for a name that isn't there: which are, and the nearest one.

A namespace may have 100 000 names and a refusal must not cost more for it, so only so many are
listed and compared. In a short name, one slip of the fingers is found among any number of them.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from services.process.text import listing, plain

LISTED = 8
"""How many names a message lists."""

COMPARED = 64
"""How many names are compared with the one that was asked for."""

_LIKE = 0.5  # the share of common pairs of letters from which on two names are alike
_SHORT = 24  # letters up to which all slips are tried: there are about 80 times as many
_LONGEST = 63
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-."


def nearest(asked: str, known: Mapping[str, object]) -> str | None:
    """Return the known name that `asked` most likely means, None if none is near.

    One slip (a letter more, less, other or swapped) counts first, then likeness; case never.
    """
    if len(asked) > _LONGEST:
        return None
    lower = asked.lower()
    if len(lower) <= _SHORT:
        for candidate in _one_slip_away(lower):
            if candidate in known:
                return candidate
    pairs = _pairs(lower)
    likeness = {name: _likeness(pairs, _pairs(name)) for name in islice(known, COMPARED)}
    best = max(likeness, key=likeness.__getitem__, default=None)
    return best if best is not None and likeness[best] >= _LIKE else None


def known_names(known: Mapping[str, object]) -> str:
    """Return the beginning of the list of known names, at least one, as a person would say it."""
    some = sorted(islice(known, COMPARED))[:LISTED]
    return listing([plain(name) for name in some], more=len(known) - len(some))


def _pairs(name: str) -> set[str]:
    """Return all that stands side by side in a name, beginning and end included."""
    framed = f"^{name.lower()}$"
    return {framed[i : i + 2] for i in range(len(framed) - 1)}


def _likeness(one: set[str], other: set[str]) -> float:
    """Return Dice's coefficient: 1 for the same pairs, 0 for none in common."""
    return 2 * len(one & other) / (len(one) + len(other))


def _one_slip_away(asked: str) -> Iterable[str]:
    yield asked
    cuts = range(len(asked) + 1)
    yield from (asked[:i] + asked[i + 1 :] for i in cuts)
    yield from (asked[:i] + asked[i + 1 : i + 2] + asked[i : i + 1] + asked[i + 2 :] for i in cuts)
    yield from (asked[:i] + c + asked[i + 1 :] for i in cuts for c in _LETTERS)
    yield from (asked[:i] + c + asked[i:] for i in cuts for c in _LETTERS)
