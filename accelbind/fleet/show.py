"""How `accelbind devices --cluster` shows a fleet: a line per node, or per device."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from accelbind.devices_show import TITLES, UNKNOWN, cells
from accelbind.fleet.reading import Fleet, FleetNode
from accelbind.output import JSON_VERSION, table_lines
from services.kubelet.values import HEALTHY
from services.node.table import FROM_PLUGIN, Row
from services.process.text import count, plain

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


def filtered(fleet: Fleet, wanted: Callable[[Row], bool] | None) -> Fleet:
    """The fleet with the devices that are wanted, and the nodes of which that is unknown."""
    if wanted is None:
        return fleet
    nodes = (
        msgspec.structs.replace(each, devices=tuple(filter(wanted, each.devices)))
        for each in fleet.nodes
    )
    return Fleet(tuple(each for each in nodes if each.devices or each.error), fleet.problems)


def document(fleet: Fleet) -> dict[str, Any]:
    """The fleet for programs."""
    return {"version": JSON_VERSION, **msgspec.to_builtins(fleet)}


def yaml_text(fleet: Fleet) -> str:
    """The same as YAML."""
    return yaml.safe_dump(document(fleet), sort_keys=False, allow_unicode=True)


def node_lines(fleet: Fleet, *, wide: bool) -> Iterator[str]:
    """Yield a line per node, and one for all."""
    titles = (*_NODE_TITLES, *(("POOL", "RESOURCES", "KUBELET") if wide else ()), "NOTE")
    if not fleet.nodes:
        yield "no such node has to do with accelbind"
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
