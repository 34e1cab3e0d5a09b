"""How commands print: tables as kubectl prints them, one fact per line, JSON for scripts."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from services.process.text import plain

GAP: Final = "   "
JSON_VERSION: Final = 1
"""Of all JSON that commands print: fields may be added to a version, none is removed or changed."""
_ACRONYMS: Final = {
    word.lower(): word for word in ("AFU", "CA", "CPUs", "FME", "MHz", "NUMA", "PCI")
}


class OutputFormat(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]


def styled(text: str, colour: str | None) -> str:
    """Text in a colour, unless NO_COLOR is set or the terminal has no colours.

    `typer.echo` removes the colour where the output is no terminal.
    """
    if not colour or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return typer.style(text, fg=colour)


def line_width() -> int:
    """Columns of the terminal, or of COLUMNS; 0 if the output is a pipe or a file without it."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return 0


def versioned(value: Mapping[str, Any] | Sequence[object]) -> dict[str, Any]:
    """An object or a list as an object with the version of our JSON; a list is its `items`."""
    fields = value if isinstance(value, Mapping) else {"items": value}
    return {"version": JSON_VERSION, **fields}


def print_json(value: Mapping[str, Any] | Sequence[object], *, err: bool = False) -> None:
    """Print an object or a list as an indented JSON object; with `err` on stderr."""
    typer.echo(json.dumps(versioned(value), indent=2), err=err)


def print_result(
    output: OutputFormat, value: Mapping[str, Any] | Sequence[object], lines: Iterable[str]
) -> None:
    """Print a value as JSON, or its lines for people."""
    if output is OutputFormat.JSON:
        print_json(value)
        return
    for line in lines:
        typer.echo(line)


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], gap: str = GAP
) -> Iterator[str]:
    """Columns as wide as their longest text, since scripts may read them; `-` if it is empty."""
    lines = [list(headings), *([text or "-" for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        yield gap.join(cells).rstrip()


def fact_lines(facts: Mapping[str, object]) -> Iterator[str]:
    """What JSON output has too, as a name and a value per line, without empty ones."""
    rows = [*_facts("", facts)]
    width = max((len(name) for name, _ in rows), default=0)
    return (f"{name.ljust(width)}  {value}" for name, value in rows)


def _facts(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _facts(f"{name} {_spelled(key)}".strip(), each)
    elif isinstance(value, list):
        separator = "; " if any(isinstance(each, Mapping) for each in value) else ", "
        yield from _facts(name, separator.join(map(_in_line, value)))
    elif value not in (None, ""):
        yield name, plain(str(value), 400)


def _in_line(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_spelled(key)} {each}" for key, each in value.items())
    return str(value)


def _spelled(key: str) -> str:
    """A key of JSON in words: `interfaceId` is `interface id`, `afuId` is `AFU id`."""
    words = re.findall(r"[A-Z][a-z]+|[^A-Z]+", key)
    return " ".join(_ACRONYMS.get(word.lower(), word.lower()) for word in words)


def count(number: int, noun: str) -> str:
    """A number and its noun: `1 card`, `2 cards`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
