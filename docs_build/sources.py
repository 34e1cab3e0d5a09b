"""The texts that pictures are made from: one thing a line, `#` begins a comment."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class BadSource(ValueError):
    """A line of a picture's source can't be understood."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a source.

    Args:
        where: File and number, for errors.
        head: What stands before the colon, in words.
        texts: What stands behind it, split at `|`.
    """

    where: str
    head: tuple[str, ...]
    texts: tuple[str, ...]

    def number(self, index: int) -> float:
        """A word of the head as a number.

        Raises:
            BadSource: It is none.
        """
        try:
            return float(self.head[index])
        except (IndexError, ValueError) as error:
            raise BadSource(f"{self.where}: word {index + 1} is to be a number") from error


def lines(path: Path) -> Iterator[Line]:
    """The lines of a source that say something."""
    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = raw.strip()
        if text and not text.startswith("#"):
            head, _, rest = text.partition(": ")
            texts = tuple(part.strip() for part in re.split(r"\s\|\s", rest)) if rest else ()
            yield Line(f"{path.name}:{number}", tuple(head.removesuffix(":").split()), texts)
