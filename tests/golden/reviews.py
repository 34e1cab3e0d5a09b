"""The 500 reviews whose answers are golden, and the mappings that they are answered with.

They were generated once: three of four pods are usual, the others have odd names, quantities,
variables and shapes; every tenth review is about something else, and every tenth is broken.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "files"
DOMAINS: Final = ("fpga.intel.com", "fpga.example.com")


@dataclass(frozen=True, slots=True)
class Review:
    """What is sent; the golden file names it by its number."""

    number: int
    about: str
    body: bytes


def mappings() -> list[dict[str, Any]]:
    """The mappings as objects; some of them can't be used."""
    return [json.loads(line) for line in (FOLDER / "mappings.jsonl").read_text().splitlines()]


def reviews() -> Iterator[Review]:
    """All of them, in order; bytes that are no UTF-8 are escaped in the file."""
    for number, line in enumerate((FOLDER / "sent-reviews.jsonl").read_text().splitlines()):
        sent = json.loads(line)
        body = sent["body"].encode("utf-8", "surrogateescape")
        yield Review(number, sent["about"], body)
