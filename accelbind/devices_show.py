"""How `accelbind devices` shows a table: to people, to scripts, once or again and again."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
import typer

from services.node.table import Row, Table
from services.process.text import plain

TITLES: Final = (
    "DEVICE",
    "CARD",
    "PCI",
    "NUMA",
    "FUNCTION",
    "HEALTH",
    "POD",
    "CONTAINER",
    "WHY",
)
NONE: Final = "-"
UNKNOWN: Final = "?"

_GAP: Final = "  "
_SHORT: Final = 8
"""Digits of an id that are shown where the terminal is narrow."""
_MESSAGE: Final = 400
_HOME: Final = "\x1b[H"
_CLEAR_REST: Final = "\x1b[J"
_CLEAR_LINE: Final = "\x1b[K"

Show = Callable[[Table], None]


class Source(Protocol):
    """Gives tables."""

    def look(self) -> Table:
        """The table now."""


def shower(*, as_json: bool, watch: bool) -> Show:
    """What shows a table, and with `watch` each that differs from the last.

    Args:
        as_json: For scripts.
        watch: Whether more will follow.
    """
    if as_json:
        return _json_line if watch else _json
    if not watch:
        return _table
    return _Screen().show if sys.stdout.isatty() else _Changes().show


def follow(source: Source, show: Show, interval: float) -> None:
    """Shows each table that differs from the last, until interrupted.

    Args:
        source: Gives tables.
        show: Shows one.
        interval: Seconds between two looks.
    """
    last: tuple[Table, object] | None = None
    while True:
        seen = source.look(), shutil.get_terminal_size() if sys.stdout.isatty() else None
        if seen != last:
            show(seen[0])
            sys.stdout.flush()
            last = seen
        time.sleep(interval)


# For scripts -------------------------------------------------------------------------------------


def _json(table: Table) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(table), indent=2).decode())


def _json_line(table: Table) -> None:
    typer.echo(msgspec.json.encode(table).decode())


# For people --------------------------------------------------------------------------------------


def _table(table: Table) -> None:
    """Everything at once; what couldn't be found out goes to stderr."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines(table, width):
        typer.echo(line)
    for problem in table.problems:
        typer.echo(f"note: {plain(problem, _MESSAGE)}", err=True)


def lines(table: Table, width: int = 0) -> list[str]:
    """The table as text.

    Args:
        table: What to show.
        width: Of the terminal; ids are cut where it is too narrow for them. 0 for no terminal.
    """
    if not table.devices:
        return [f"no devices on node {plain(table.node)} in mode {plain(table.mode)}"]
    found = _aligned([TITLES, *(cells(row) for row in table.devices)])
    if width and any(len(line) > width for line in found):
        found = _aligned([TITLES, *(cells(row, digits=_SHORT) for row in table.devices)])
    return found


def cells(row: Row, digits: int = 0) -> tuple[str, ...]:
    """A device's cells, in the order of `TITLES`.

    Args:
        row: The device.
        digits: How many of an id are shown; 0 for all.
    """
    pods = dict.fromkeys(
        f"{own.namespace}/{own.pod}" if own.pod else UNKNOWN for own in row.holders
    )
    containers = dict.fromkeys(owner.container for owner in row.holders)
    texts = (
        row.device,
        row.card,
        ",".join(row.pci_addresses),
        "" if row.numa_node is None else str(row.numa_node),
        _function(row, digits),
        row.health,
        ",".join(pods),
        ",".join(containers),
        _why(row),
    )
    return tuple(plain(text, _MESSAGE) or NONE for text in texts)


def _why(row: Row) -> str:
    messages = "; ".join(reason.message for reason in row.reasons)
    return messages if row.resource or not messages else f"not offered: {messages}"


def _function(row: Row, digits: int) -> str:
    """The ids, interface/AFU of each port, and the logical names where they are known."""
    if not row.interface_id and not any(row.afu_ids):
        return ""
    afu_ids = ",".join(_cut(afu_id, digits) or UNKNOWN for afu_id in row.afu_ids)
    ids = f"{_cut(row.interface_id, digits) or UNKNOWN}/{afu_ids}".rstrip("/")
    return f"{ids} ({','.join(row.names)})" if row.names else ids


def _cut(text: str, digits: int) -> str:
    return f"{text[:digits]}…" if digits and len(text) > digits else text


def _aligned(found: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(each, widths, strict=True)).rstrip()
        for each in found
    ]


class _Screen:
    """Draws the table over the last one, as much of it as the terminal holds."""

    def show(self, table: Table) -> None:
        size = shutil.get_terminal_size()
        source = "the running plugin" if table.source == "plugin" else "the files"
        head = f"node {table.node}, mode {table.mode}, from {source}, at {time.strftime('%X')}"
        notes = [f"note: {plain(problem, _MESSAGE)}" for problem in table.problems]
        text = [plain(head), "", *lines(table, size.columns), *notes]
        body = [part for line in text for part in _parts(line, size.columns)]
        room = size.lines - 1
        if len(body) > room:
            more = len(body) - room + 1
            body = [*body[: room - 1], f"… and {more} lines more: make the window larger"]
        drawn = "".join(f"{_CLEAR_LINE}{line[: size.columns]}\n" for line in body)
        typer.echo(f"{_HOME}{drawn}{_CLEAR_REST}", nl=False)


def _parts(line: str, width: int) -> list[str]:
    """A line as the screen's lines that it takes: health and reasons stand at its end."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


class _Changes:
    """Prints the table, and then a line for each change: `+` has come, `-` gone, `~` changed."""

    def __init__(self) -> None:
        self._last: Table | None = None

    def show(self, table: Table) -> None:
        last, self._last = self._last, table
        if last is None:
            for line in lines(table):
                typer.echo(line)
            before: set[str] = set()
        else:
            before = set(last.problems)
            _say_changes(last, table)
        for problem in table.problems:
            if problem not in before:
                typer.echo(f"note: {plain(problem, _MESSAGE)}", err=True)


def _say_changes(last: Table, table: Table) -> None:
    if (last.source, last.mode) != (table.source, table.mode):
        typer.echo(f"{time.strftime('%X')} = mode {plain(table.mode)}, from {plain(table.source)}")
    old, new = ({row.device: row for row in each.devices} for each in (last, table))
    for key in [*old, *(key for key in new if key not in old)]:
        if key not in new:
            typer.echo(f"{time.strftime('%X')} - {plain(key)}")
        elif key not in old or new[key] != old[key]:
            sign = "~" if key in old else "+"
            typer.echo(f"{time.strftime('%X')} {sign} {_GAP.join(cells(new[key]))}")
