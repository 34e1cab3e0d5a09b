"""A node's devices for people and scripts: what each is, its health, and which containers have it.

`accelbind devices` shows it, and the plugin answers with it at `/devices`. Its JSON is an
interface: keys may be added, and never change or go. The README lists them.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from services.containers.holders import Holder, Holders
from services.devices.model import Device
from services.devices.resources import AdvertisedResources
from services.kubelet.values import HEALTHY, UNHEALTHY
from services.mappings.model import Mapping
from services.names import REGION_PREFIX, by_number
from services.process.problem import Problem

FROM_PLUGIN: Final = "plugin"
FROM_DRA: Final = "dra"
"""Sources of a table: the running process, which serves by the device plugin API or by DRA."""


class Row(msgspec.Struct, frozen=True, rename="camel"):
    """One device."""

    device: str
    """Its id, unique on the node."""
    resource: str = ""
    """Full resource name; empty if it can't be offered."""
    card: str = ""
    """Name of the card that it is (a part of)."""
    type: str = ""
    """Name of its device type; empty for an FPGA."""
    pci_addresses: tuple[str, ...] = ()
    numa_node: int | None = None
    interface_id: str = ""
    """Of its region; empty if unknown."""
    afu_ids: tuple[str, ...] = ()
    """The function in each of its ports; empty texts where that can't be read."""
    names: tuple[str, ...] = ()
    """Logical names of what is in it, as namespace/name, where mappings are known."""
    health: str = ""
    """`Healthy` or `Unhealthy`."""
    reasons: tuple[Problem, ...] = ()
    nodes: tuple[str, ...] = ()
    """Device nodes that a container gets with it."""
    holders: tuple[Holder, ...] = ()
    """Containers that have it: several where they take turns."""


class Table(msgspec.Struct, frozen=True, rename="camel"):
    """A node's devices at one moment."""

    node: str = ""
    mode: str = ""
    root: str = ""
    kubelet_dir: str = ""
    source: str = ""
    """`plugin` or `dra`: as the running process sees them; `files`: read without one."""
    process_version: str = ""
    """The version of the process that has made it; empty for `files`."""
    devices: tuple[Row, ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong with the node, and what couldn't be found out; a sentence each."""


GONE: Final = "gone"
"""Reason code of a device that a container has and the node hasn't."""


def rows(tree: AdvertisedResources, holders: Holders) -> tuple[Row, ...]:
    """The devices of a node: those offered, those that can't be, and those that are gone."""
    # By id only: a port that is given another function while a container has it is still that
    # container's, though the kubelet knows it under the resource that it had.
    owners: dict[str, set[Holder]] = {}
    resources: dict[str, str] = {}
    for (resource, key), users in sorted(holders.items()):
        owners.setdefault(key, set()).update(users)
        resources[key] = resource
    devices = sorted((*tree.devices(), *tree.not_offered), key=lambda device: by_number(device.id))
    here = {device.id for device in devices}
    gone = sorted(resources.keys() - here, key=by_number)
    return (
        *(_row(device, tuple(sorted(owners.get(device.id, ())))) for device in devices),
        *(_gone(key, resources[key], tuple(sorted(owners[key]))) for key in gone),
    )


def _row(device: Device, owners: tuple[Holder, ...]) -> Row:
    return Row(
        device=device.id,
        resource=device.resource,
        card=device.card,
        type=device.type,
        pci_addresses=device.pci_addresses,
        numa_node=device.numa_node,
        interface_id=device.interface_id,
        afu_ids=device.afu_ids,
        health=HEALTHY if device.healthy else UNHEALTHY,
        reasons=device.reasons,
        nodes=tuple(f"/dev/{node.name}" for node in device.nodes),
        holders=owners,
    )


def _gone(key: str, resource: str, owners: tuple[Holder, ...]) -> Row:
    # Its card has vanished, or another mode of the node offered it.
    text = f"a container has {key} of {resource}, and the node no longer has it"
    return Row(
        device=key,
        resource=resource,
        health=UNHEALTHY,
        reasons=(Problem(GONE, text),),
        holders=owners,
    )


def with_names(table: Table, mappings: Iterable[Mapping]) -> Table:
    """A table with the logical names of the functions and regions of its devices."""
    names: dict[tuple[str, str], list[str]] = {}
    for each in mappings:
        key = (each.resolution.interface_id, each.resolution.afu_id or "")
        names.setdefault(key, []).append(f"{each.namespace}/{each.name}")
    devices = tuple(msgspec.structs.replace(row, names=_names(row, names)) for row in table.devices)
    return msgspec.structs.replace(table, devices=devices)


def _names(row: Row, names: dict[tuple[str, str], list[str]]) -> tuple[str, ...]:
    carried = [afu_id for afu_id in row.afu_ids if afu_id]
    if row.resource.startswith(REGION_PREFIX):
        carried.append("")
    unique = {name for afu_id in carried for name in names.get((row.interface_id, afu_id), ())}
    return tuple(sorted(unique))
