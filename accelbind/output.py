"""How commands print: tables as kubectl prints them, one fact per line, JSON for scripts."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer

GAP: Final = "   "


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


def print_json(value: object) -> None:
    """Prints a value as indented JSON."""
    typer.echo(json.dumps(value, indent=2))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints columns as wide as their longest text; an empty text shows as `-`."""
    for line in table_lines(headings, rows):
        typer.echo(line)


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], gap: str = GAP
) -> Iterator[str]:
    """The lines of a table, never cut: scripts may read them too."""
    lines = [list(headings), *([text or "-" for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        yield gap.join(cells).rstrip()


def print_facts(facts: Mapping[str, str]) -> None:
    """Prints a name and a value per line; facts without a value are left out."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        if value:
            typer.echo(f"{name.ljust(width)}  {value}")


def count(number: int, noun: str) -> str:
    """A number and its noun: `1 card`, `2 cards`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
