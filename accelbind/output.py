"""How commands answer: tables as kubectl prints them, facts, JSON, errors and exit codes."""

import inspect
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

import typer

from services.process.errors import AccelbindError
from services.process.text import plain

GAP: Final = "   "
JSON_VERSION: Final = 1
"""Of all JSON that commands print: fields may be added to a version, none is removed or changed."""
_ACRONYMS: Final = {
    word.lower(): word for word in ("AFU", "CA", "CPUs", "FME", "MHz", "NUMA", "PCI")
}

StyledLine: TypeAlias = tuple[str | None, str]
"""A colour, and a line of output."""

_LINE_ENDS: Final = re.compile(r"(?<=[^\s\]])\n(?=[^\s\[])")
"""Between the lines of a paragraph; examples and tables are indented."""


class Exit(IntEnum):
    """Exit codes, which scripts rely on: yes, no and no answer are as of grep and diff."""

    YES = 0
    """Done, or the answer is yes."""
    NO = 1
    """The answer is no: a refusal, a finding, a device that refuses."""
    UNKNOWN = 2
    """There is no answer: the request is wrong (arguments, settings, names), or something that it
    needs can't be read, written or reached."""
    BUSY = 3
    """`accelbind fpga`: somebody else has the device."""
    GONE = 4
    """`accelbind fpga`: the device does not exist or was removed."""
    NO_ANSWER = 5
    """`accelbind fpga`: the device does not answer in time."""
    OURS = 70
    """A bug in accelbind; `accelbind --debug` shows where."""
    INTERRUPTED = 130
    """Interrupted."""


def output_of(text: str) -> Any:  # noqa: ANN401 - as `typer.Option`
    """The option that chooses how to print, with this help."""
    return typer.Option("--output", "-o", help=text)


Output: TypeAlias = Annotated[Literal["text", "json"], output_of("Output format.")]


def joined(docstring: str | None) -> str:
    """A docstring as help, whose paragraphs are as wide as the terminal."""
    return _LINE_ENDS.sub(" ", inspect.cleandoc(docstring or ""))


def styled(text: str, colour: str | None) -> str:
    """Text in a colour, unless NO_COLOR is set or the terminal has no colours."""
    # Where the output is no terminal, `typer.echo` removes the colour.
    if not colour or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return typer.style(text, fg=colour)


def line_width() -> int:
    """Columns of the terminal, or of COLUMNS; 0 for no limit."""
    # The lines of a pipe or a file are for programs.
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return 0


def versioned(value: Mapping[str, Any] | Sequence[object]) -> dict[str, Any]:
    """An object, or a list as the `items` of one, with the version of our JSON."""
    fields = value if isinstance(value, Mapping) else {"items": value}
    return {"version": JSON_VERSION, **fields}


def print_json(value: Mapping[str, Any] | Sequence[object], *, err: bool = False) -> None:
    """Print an object or a list as an indented JSON object; with `err` on stderr."""
    typer.echo(json.dumps(versioned(value), indent=2), err=err)


def warn(text: object) -> None:
    """Print a warning on stderr, beside a result of either format."""
    typer.echo(f"warning: {text}", err=True)


def error_text(error: Exception) -> str:
    """An error as a line: a sentence of ours, a file and the system's reason, or a bug."""
    if isinstance(error, AccelbindError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    return f"internal error: {type(error).__name__}: {error}"


def print_result(
    output: str, value: Mapping[str, Any] | Sequence[object], lines: Iterable[str | StyledLine]
) -> None:
    """Print a value as JSON, or its lines for people."""
    if output == "json":
        print_json(value)
    else:
        print_lines(lines)


def print_lines(lines: Iterable[str | StyledLine]) -> None:
    """Print lines for people, none wider than the terminal."""
    width = line_width()
    for line in lines:
        colour, text = (None, line) if isinstance(line, str) else line
        for part in wrapped(text, width):
            typer.echo(styled(part, colour))


def wrapped(text: str, width: int) -> Iterator[str]:
    """Yield a line as lines of at most so many columns, 0 being no limit."""
    if not width or len(text) <= width:
        yield text
        return
    indent = text[: len(text) - len(text.lstrip())]
    yield from textwrap.wrap(
        text.lstrip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,  # so that a long name can be copied
        break_on_hyphens=False,
    )


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their longest text; `-` if it is empty."""
    lines = [list(headings), *([text or "-" for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    beside, screen = [*range(len(widths))], line_width()
    # On a terminal that is too narrow, the widest columns go below their row; the first one names
    # it.
    while screen and len(beside) > 1 and _width(widths[each] for each in beside) > screen:
        beside.remove(max(reversed(beside[1:]), key=widths.__getitem__))
    for number, line in enumerate(lines):
        yield GAP.join(line[each].ljust(widths[each]) for each in beside).rstrip()
        if number:
            for each in range(len(line)):
                if each not in beside and line[each] != "-":
                    yield from wrapped(f"  {headings[each]} {line[each]}", screen)


def _width(columns: Iterable[int]) -> int:
    return sum(each + len(GAP) for each in columns) - len(GAP)


def fact_lines(facts: Mapping[str, object]) -> Iterator[str]:
    """The values of a JSON object, a line each, without empty ones."""
    rows, screen = [*_facts("", facts)], line_width()
    width = max((len(name) for name, _ in rows), default=0) + 2
    for name, value in rows:
        yield from wrapped(f"{name.ljust(width)}{value}", screen)


def _facts(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _facts(f"{name} {_spelled(key)}".strip(), each)
    elif isinstance(value, list):
        separator = "; " if any(isinstance(each, Mapping) for each in value) else ", "
        yield from _facts(name, separator.join(map(_in_line, value)))
    elif value not in (None, ""):
        yield name, plain(str(value), 2000)


def _in_line(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_spelled(key)} {each}" for key, each in value.items())
    return str(value)


def _spelled(key: str) -> str:
    """A key of JSON in words: `interfaceId` is `interface id`, `afuId` is `AFU id`."""
    words = re.findall(r"[A-Z][a-z]+|[^A-Z]+", key)
    return " ".join(_ACRONYMS.get(word.lower(), word.lower()) for word in words)
