"""Text from outside in messages: quoted, clipped, on one line.

Text of a pod, a mapping or a file may be long, hold control characters or be built to mislead a
reader. It goes into messages only through these functions.
"""

from collections.abc import Iterable, Sequence

SHOWN = 120  # characters: a full resource name fits


def clip(text: str, limit: int) -> str:
    """The text, or its beginning and an ellipsis if it has more than `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plain(text: str, limit: int = SHOWN) -> str:
    """The text on one line, unprintable characters escaped, clipped to `limit` characters."""
    short = clip(text, limit)  # first: it may have megabytes
    if short.isprintable():
        return short
    escaped = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in short)
    return clip(escaped, limit)


def quote(text: str, limit: int = SHOWN) -> str:
    """As `plain`, in double quotes."""
    return f'"{plain(text, limit)}"'


def listing(
    items: Sequence[str], *, most: int | None = None, more: int = 0, last: str = "and"
) -> str:
    """Join at least one word: ``a``, ``a and b``, ``a, b and c``, ``a, b and 7 more``.

    Shows at most `most` of them; `more` is how many there are besides.
    """
    shown = items[:most]
    more += len(items) - len(shown)
    words = [*shown, f"{more} more"] if more else list(shown)
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def count(number: int, noun: str) -> str:
    """A number and its noun: `1 card`, `2 cards`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def numbered(sentences: Iterable[str], *, limit: int) -> str:
    """Join sentences into one text of at most `limit` characters; several are numbered."""
    parts = list(sentences)
    if len(parts) == 1:
        return clip(parts[0], limit)
    text = " ".join(f"({n}) {part}" for n, part in enumerate(parts, 1))
    return clip(f"{len(parts)} problems: {text}", limit)


def words(text: str) -> frozenset[str]:
    """The words of a text, such as the names of an object's fields."""
    return frozenset(text.split())
