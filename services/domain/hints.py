"""What to tell someone who asked for a name that isn't there: which are, and the nearest one.

A namespace may have 100 000 names and a refusal must not cost more for it, so only so many are
listed, compared by likeness, or tried as the outcome of a slip of the fingers.
"""

import difflib
from collections.abc import Iterable, Mapping
from itertools import islice

from services.domain.text import listing, plain

LISTED = 8
"""How many names a message lists."""

COMPARED = 64
"""How many names are compared by likeness."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-."
_LONGEST = 63


def nearest(asked: str, known: Mapping[str, object]) -> str | None:
    """Return the known name that `asked` most likely means, None if none is near.

    One slip (a letter more, less, other or swapped, or the wrong case) is found among any number
    of names; beyond that, likeness decides among the first few.
    """
    if len(asked) > _LONGEST:
        return None
    for candidate in _one_slip_away(asked):
        if candidate in known:
            return candidate
    close = difflib.get_close_matches(asked.lower(), islice(known, COMPARED), n=1)
    return close[0] if close else None


def known_names(known: Mapping[str, object]) -> str:
    """Return the beginning of the list of known names, at least one, as a person would say it."""
    some = sorted(islice(known, COMPARED))[:LISTED]
    return listing([plain(name) for name in some], more=len(known) - len(some))


def _one_slip_away(asked: str) -> Iterable[str]:
    yield asked.lower()
    cuts = range(len(asked) + 1)
    yield from (asked[:i] + asked[i + 1 :] for i in cuts)
    yield from (asked[:i] + asked[i + 1 : i + 2] + asked[i : i + 1] + asked[i + 2 :] for i in cuts)
    yield from (asked[:i] + c + asked[i + 1 :] for i in cuts for c in _LETTERS)
    yield from (asked[:i] + c + asked[i:] for i in cuts for c in _LETTERS)
