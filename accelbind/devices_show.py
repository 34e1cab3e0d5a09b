"""How `accelbind devices` prints a table: for people and for scripts, once or after changes."""

import sys
import time
from typing import Final

import msgspec
import typer

from accelbind.output import line_width, table_lines, versioned
from services.node.table import Row, Table
from services.process.text import plain

TITLES: Final = (
    *("DEVICE", "CARD", "PCI", "NUMA", "FUNCTION"),
    *("HEALTH", "POD", "CONTAINER", "WHY"),
)
UNKNOWN: Final = "?"

_GAP: Final = "  "
_SHORT: Final = 8
"""Digits of an id that are shown where the terminal is narrow."""
_MESSAGE: Final = 400
_CLEAR: Final = "\x1b[2J\x1b[H"


def show(table: Table, *, as_json: bool, watch: bool) -> None:
    """Print a table; with `watch` as one of several, after clearing a terminal."""
    if as_json:
        document = msgspec.json.encode(versioned(msgspec.to_builtins(table)))
        typer.echo((document if watch else msgspec.json.format(document, indent=2)).decode())
        sys.stdout.flush()
        return
    if watch:
        source = "the running plugin" if table.source == "plugin" else "the files"
        head = f"node {table.node}, mode {table.mode}, from {source}, at {time.strftime('%X')}"
        typer.echo(f"{_CLEAR if sys.stdout.isatty() else ''}{plain(head)}")
    for line in lines(table, line_width()):
        typer.echo(line)
    for problem in table.problems:
        typer.echo(f"note: {plain(problem, _MESSAGE)}", err=True)
    if watch:
        typer.echo()
    sys.stdout.flush()


def lines(table: Table, width: int = 0) -> list[str]:
    """The lines of a table; if `width` columns are too few, ids are cut. 0 is no limit."""
    if not table.devices:
        return [f"no devices on node {plain(table.node)} in mode {plain(table.mode)}"]
    table_rows = [*table_lines(TITLES, map(cells, table.devices), _GAP)]
    if width and any(len(line) > width for line in table_rows):
        short = (cells(row, digits=_SHORT) for row in table.devices)
        table_rows = [*table_lines(TITLES, short, _GAP)]
    return table_rows


def cells(row: Row, digits: int = 0) -> tuple[str, ...]:
    """A device's cells, in the order of `TITLES`, with so many digits of each id; 0 is all."""
    pods = (f"{each.namespace}/{each.pod}" if each.pod else UNKNOWN for each in row.holders)
    containers = (each.container for each in row.holders)
    messages = "; ".join(reason.message for reason in row.reasons)
    texts = (
        row.device,
        row.card,
        ",".join(row.pci_addresses),
        "" if row.numa_node is None else str(row.numa_node),
        _function(row, digits),
        row.health,
        ",".join(dict.fromkeys(pods)),
        ",".join(dict.fromkeys(containers)),
        messages if row.resource or not messages else f"not offered: {messages}",
    )
    return tuple(plain(text, _MESSAGE) for text in texts)


def _function(row: Row, digits: int) -> str:
    """Interface and AFU id of each port, and the logical names, as far as they are known."""
    if not row.interface_id and not any(row.afu_ids):
        return ""
    afu_ids = ",".join(_cut(afu_id, digits) for afu_id in row.afu_ids)
    ids = f"{_cut(row.interface_id, digits)}/{afu_ids}".rstrip("/")
    return f"{ids} ({','.join(row.names)})" if row.names else ids


def _cut(text: str, digits: int) -> str:
    return f"{text[:digits]}…" if digits and len(text) > digits else text or UNKNOWN
