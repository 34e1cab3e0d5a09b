"""How `accelbind devices` prints the devices of a node, and those of a fleet."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import typer

from accelbind.devices.fleet import Fleet, FleetNode
from accelbind.output import print_lines, table_lines, versioned
from services.containers.holders import Holder
from services.kubelet.values import HEALTHY
from services.node.table import FROM_PLUGIN, Row, Table
from services.process.text import count, plain

TITLES: Final = (
    *("DEVICE", "RESOURCE", "TYPE", "CARD", "PCI", "NUMA", "FUNCTION", "NODES"),
    *("HEALTH", "POD", "CONTAINER", "WHY"),
)
UNKNOWN: Final = "?"

_MESSAGE: Final = 400
_CLEAR: Final = "\x1b[2J\x1b[H"


def print_table(table: Table, *, as_json: bool, watch: bool) -> None:
    """Print a table; with `watch` as one of several, after clearing a terminal."""
    if as_json:  # with watch a line each
        document = msgspec.json.encode(versioned(msgspec.to_builtins(table)))
        typer.echo((document if watch else msgspec.json.format(document, indent=2)).decode())
    else:
        if watch and sys.stdout.isatty():  # what is written to a file must stay
            typer.echo(_CLEAR, nl=False)
        print_lines(lines(table))
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


_NODE_TITLES: Final = ("NODE", "MODE", "VERSION", "DEVICES", "FREE", "USED", "UNHEALTHY")
_NOTE: Final = 160
_NARROW: Final = ("DEVICE", "RESOURCE", "TYPE", "HEALTH", "POD", "CONTAINER", "WHY")
"""Columns of devices that a fleet shows unless more are asked for."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of devices."""

    all: int
    free: int
    """Healthy and nobody's."""
    used: int
    unhealthy: int

    @classmethod
    def of(cls, devices: Iterable[Row]) -> "Tally":
        """Those of some devices."""
        rows = [*devices]
        free = sum(bool(each.health == HEALTHY and not each.holders) for each in rows)
        used = sum(bool(each.holders) for each in rows)
        return cls(len(rows), free, used, sum(each.health != HEALTHY for each in rows))


def node_lines(fleet: Fleet, *, wide: bool) -> Iterator[str]:
    """Yield a line per node, and one for all."""
    titles = (*_NODE_TITLES, *(("POOL", "RESOURCES", "KUBELET") if wide else ()), "NOTE")
    if not fleet.nodes:
        yield "no node runs accelbind or publishes its devices"
        return
    yield from table_lines(titles, (_node_cells(each, wide=wide) for each in fleet.nodes))
    all_of = Tally.of(row for node in fleet.nodes for row in node.devices)
    known = Tally.of(row for node in fleet.nodes if node.holders_known for row in node.devices)
    hidden = all_of.all - known.all
    silent = sum(bool(each.error) for each in fleet.nodes)
    yield ""
    yield (
        f"{count(len(fleet.nodes), 'node')}, {count(all_of.all, 'device')}: {known.free} free,"
        f" {known.used} used, {all_of.unhealthy} unhealthy"
        + (f"; holders of {count(hidden, 'device')} unknown" if hidden else "")
        + (f"; {count(silent, 'node')} without an answer" if silent else "")
    )


def device_lines(fleet: Fleet, *, wide: bool) -> Iterator[str]:
    """Yield a line per device, and one per node without an answer."""
    shown = [each for each in range(len(TITLES)) if wide or TITLES[each] in _NARROW]
    rows = []
    for node in fleet.nodes:
        for device in node.devices:
            texts = cells(device)
            rows.append((plain(node.node), *(texts[each] for each in shown)))
    yield from table_lines(("NODE", *(TITLES[each] for each in shown)), rows)
    for node in fleet.nodes:
        if node.error:
            yield f"{plain(node.node)}: {plain(node.error, _NOTE)}"


def _node_cells(node: FleetNode, *, wide: bool) -> tuple[str, ...]:
    tally = Tally.of(node.devices)
    known = bool(node.source)
    uses = (tally.free, tally.used) if node.holders_known else (UNKNOWN, UNKNOWN)
    numbers = (tally.all, *uses, tally.unhealthy)
    more: tuple[str, ...] = ()
    if wide:
        more = (node.pool, _resources(node), _amounts(node.counted))
    texts = (
        node.node,
        node.mode if node.source == FROM_PLUGIN else node.source,
        node.process_version,
        *(str(each) if known else UNKNOWN for each in numbers),
        *more,
        node.error or "; ".join((*node.problems, *_left(node))),
    )
    return tuple(plain(each, _NOTE) for each in texts)


def _left(node: FleetNode) -> Iterator[str]:
    # A plugin that ended, or served another mode, left them; the kubelet counts for minutes.
    offered = {row.resource for row in node.devices}
    for resource, number in node.counted.items():
        if number and node.source == FROM_PLUGIN and resource not in offered:
            yield f"the kubelet counts {number} of {resource}, which is not offered"


def _resources(node: FleetNode) -> str:
    by_name: dict[str, list[Row]] = {}
    for row in node.devices:
        by_name.setdefault(row.resource or row.type, []).append(row)
    return ",".join(
        f"{name}={Tally.of(rows).free if node.holders_known else UNKNOWN}/{len(rows)}"
        for name, rows in sorted(by_name.items())
    )


def _amounts(amounts: dict[str, int]) -> str:
    return ",".join(f"{name}={number}" for name, number in amounts.items() if number)
