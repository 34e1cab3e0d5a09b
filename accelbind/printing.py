"""How commands print: tables as kubectl's, facts a line each, JSON for scripts."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer

GAP = "   "


class Format(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="How to print.")]


def coloured(text: str, colour: str | None) -> str:
    """Text in a colour, unless NO_COLOR is set or the terminal knows none.

    Where no terminal reads, `typer.echo` takes the colour away.
    """
    if not colour or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return typer.style(text, fg=colour)


def print_json(value: object) -> None:
    """Prints a value as JSON, indented: for scripts, and readable all the same."""
    typer.echo(json.dumps(value, indent=2))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints columns as wide as what is in them, never cut: a script may read them too.

    Args:
        headings: one a column.
        rows: texts, as many as there are headings; empty ones show as `-`.
    """
    lines = [list(headings), *([text or "-" for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        typer.echo(GAP.join(cells).rstrip())


def print_facts(facts: Mapping[str, str]) -> None:
    """Prints a name and a value a line; facts without a value are left out."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        if value:
            typer.echo(f"{name.ljust(width)}  {value}")
