"""How `accelbind devices` prints a table: for people and for scripts, once or after changes."""

import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec
import typer

from accelbind.output import line_width, table_lines
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
UNKNOWN: Final = "?"

_GAP: Final = "  "
_SHORT: Final = 8
"""Digits of an id that are shown where the terminal is narrow."""
_MESSAGE: Final = 400
_CLEAR: Final = "\x1b[2J\x1b[H"


def printer(*, as_json: bool, watch: bool) -> Callable[[Table], None]:
    """A function that prints a table; with `watch`, one of several."""
    if as_json:
        return _print_line if watch else _print_document
    return _print_again if watch else _print_table


def _print_document(table: Table) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(table), indent=2).decode())


def _print_line(table: Table) -> None:
    typer.echo(msgspec.json.encode(table).decode())
    sys.stdout.flush()


def _print_table(table: Table) -> None:
    for line in lines(table, line_width()):
        typer.echo(line)
    for problem in table.problems:
        typer.echo(f"note: {plain(problem, _MESSAGE)}", err=True)


def _print_again(table: Table) -> None:
    """Prints a table with its time; a terminal is cleared first."""
    source = "the running plugin" if table.source == "plugin" else "the files"
    head = f"node {table.node}, mode {table.mode}, from {source}, at {time.strftime('%X')}"
    typer.echo(f"{_CLEAR if sys.stdout.isatty() else ''}{plain(head)}")
    _print_table(table)
    typer.echo()
    sys.stdout.flush()


def lines(table: Table, width: int = 0) -> list[str]:
    """The lines of a table; if `width` columns are too few, ids are cut. 0 is no limit."""
    if not table.devices:
        return [f"no devices on node {plain(table.node)} in mode {plain(table.mode)}"]
    found = [*table_lines(TITLES, (cells(row) for row in table.devices), _GAP)]
    if width and any(len(line) > width for line in found):
        short = (cells(row, digits=_SHORT) for row in table.devices)
        found = [*table_lines(TITLES, short, _GAP)]
    return found


def cells(row: Row, digits: int = 0) -> tuple[str, ...]:
    """A device's cells, in the order of `TITLES`, with so many digits of each id; 0 is all."""
    pods = dict.fromkeys(
        f"{holder.namespace}/{holder.pod}" if holder.pod else UNKNOWN for holder in row.holders
    )
    containers = dict.fromkeys(holder.container for holder in row.holders)
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
    return tuple(plain(text, _MESSAGE) for text in texts)


def _why(row: Row) -> str:
    messages = "; ".join(reason.message for reason in row.reasons)
    return messages if row.resource or not messages else f"not offered: {messages}"


def _function(row: Row, digits: int) -> str:
    """Interface and AFU id of each port, and the logical names, as far as they are known."""
    if not row.interface_id and not any(row.afu_ids):
        return ""
    afu_ids = ",".join(_cut(afu_id, digits) or UNKNOWN for afu_id in row.afu_ids)
    ids = f"{_cut(row.interface_id, digits) or UNKNOWN}/{afu_ids}".rstrip("/")
    return f"{ids} ({','.join(row.names)})" if row.names else ids


def _cut(text: str, digits: int) -> str:
    return f"{text[:digits]}…" if digits and len(text) > digits else text
