"""How `accelbind devices` prints a table: for people and for scripts, once or after changes."""

import sys
from typing import Final

import msgspec
import typer

from accelbind.output import table_lines, versioned
from services.containers.holders import Holder
from services.node.table import Row, Table
from services.process.text import plain

TITLES: Final = (
    *("DEVICE", "RESOURCE", "TYPE", "CARD", "PCI", "NUMA", "FUNCTION", "NODES"),
    *("HEALTH", "POD", "CONTAINER", "WHY"),
)
UNKNOWN: Final = "?"

_MESSAGE: Final = 400
_CLEAR: Final = "\x1b[2J\x1b[H"


def show(table: Table, *, as_json: bool, watch: bool) -> None:
    """Print a table; with `watch` as one of several, after clearing a terminal."""
    if as_json:
        document = msgspec.json.encode(versioned(msgspec.to_builtins(table)))
        typer.echo((document if watch else msgspec.json.format(document, indent=2)).decode())
        sys.stdout.flush()
        return
    if watch and sys.stdout.isatty():  # what is written to a file must stay
        typer.echo(_CLEAR, nl=False)
    for line in lines(table):
        typer.echo(line)
    for problem in table.problems:
        typer.echo(f"note: {plain(problem, _MESSAGE)}", err=True)
    if watch:
        typer.echo()
    sys.stdout.flush()


def lines(table: Table) -> list[str]:
    """The lines of a table."""
    if not table.devices:
        return [f"no devices on node {plain(table.node)} in mode {plain(table.mode)}"]
    return [*table_lines(TITLES, map(cells, table.devices))]


def cells(row: Row) -> tuple[str, ...]:
    """The cells of `TITLES`."""
    pods = map(_who, row.holders)
    containers = (each.container for each in row.holders if each.container)
    messages = "; ".join(reason.text for reason in row.reasons)
    texts = (
        row.device,
        row.resource,
        row.type,
        row.card,
        ",".join(row.pci_addresses),
        "" if row.numa_node is None else str(row.numa_node),
        _function(row),
        ",".join(row.nodes),
        row.health,
        ",".join(dict.fromkeys(pods)),
        ",".join(dict.fromkeys(containers)),
        messages if row.resource or not messages else f"not offered: {messages}",
    )
    return tuple(plain(text, _MESSAGE) for text in texts)


def _who(holder: Holder) -> str:
    if holder.claim:
        return f"claim {holder.namespace}/{holder.claim}"
    return f"{holder.namespace}/{holder.pod}" if holder.pod else UNKNOWN


def _function(row: Row) -> str:
    """Interface id, AFU id of each port, and logical names."""
    if not row.interface_id and not any(row.afu_ids):
        return ""
    afu_ids = ",".join(afu_id or UNKNOWN for afu_id in row.afu_ids)
    ids = f"{row.interface_id or UNKNOWN}/{afu_ids}".rstrip("/")
    return f"{ids} ({','.join(row.names)})" if row.names else ids
