"""Adds logical names to a node's devices, if the mappings are known.

It is apart from `services.node.table`, so that the plugin doesn't import the mappings.
"""

from collections.abc import Iterable

import msgspec

from services.mappings.model import Mapping
from services.names import DOMAIN
from services.node.table import Row, Table


def with_names(table: Table, mappings: Iterable[Mapping]) -> Table:
    """A table with the logical names of the functions and regions of its devices.

    Args:
        table: The table.
        mappings: What names there are: a function's is that of each device that carries it, a
            region's that of each device that is one.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for each in mappings:
        key = (each.resolution.interface_id, each.resolution.afu_id or "")
        names.setdefault(key, []).append(f"{each.namespace}/{each.name}")
    devices = tuple(msgspec.structs.replace(row, names=_names(row, names)) for row in table.devices)
    return msgspec.structs.replace(table, devices=devices)


def _names(row: Row, names: dict[tuple[str, str], list[str]]) -> tuple[str, ...]:
    carried = [afu_id for afu_id in row.afu_ids if afu_id]
    if row.resource.startswith(f"{DOMAIN}/region-"):
        carried.append("")
    found = {name for afu_id in carried for name in names.get((row.interface_id, afu_id), ())}
    return tuple(sorted(found))
