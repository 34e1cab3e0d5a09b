"""What was offered last, as bytes: a plugin that is started again goes on where the last one ended.

The memory of a tree (see `services.devices.resources`) is why a port whose ids turned bad stays
under the resource it had. Without it a plugin that was replaced meanwhile would drop that port, and
the kubelet would count it for minutes as one that nobody serves. What is kept is what `advertise`
needs to know of a device, and nothing of its health.

    {"mode": "af", "devices": [{"id": "dfl-port.0", "place": "0000:5e:00.0", "resource": …,
      "nodes": [["dfl-port.0", "rw"]], "numa": 0, "pci": ["0000:5e:00.0"], "card": "region0",
      "interface": …, "afus": 1}]}

It also tells which resources the kubelet may still count, whatever mode they were of: those that
aren't offered any more are to be ended (`offered`).

Whoever may write the file decides no more than under which resource a device is listed as
unhealthy, and of which resources the kubelet is told that they are empty; still nothing in it is
trusted: sizes, names and types are checked, and what isn't as it should be is no memory at all.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from services.devices.model import Device, DeviceNode, PluginMode
from services.devices.resources import OfferMemory
from services.names import DOMAIN, UNIT_RESOURCE

MAX_BYTES = 4 << 20
"""Room for ten thousand devices."""

MOST_AFUS = 256
MOST_RESOURCES = 64
"""That are ended: each is served for a while, and takes memory."""
MOST_NUMA_NODES = 1024
_TEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
"""Ids, addresses, names of cards and of nodes: none leads anywhere else."""
_RESOURCE = re.compile(
    rf"{re.escape(DOMAIN)}/[A-Za-z0-9][A-Za-z0-9._-]{{0,61}}[A-Za-z0-9]|{re.escape(UNIT_RESOURCE)}"
)
_INTERFACE = re.compile(r"[0-9a-f]{0,64}")
_PERMISSIONS = re.compile(r"[rwm]{1,3}")


def encode(memory: OfferMemory) -> bytes:
    """A memory's bytes: the same for the same devices, whatever their health.

    What has no place, such as a unit, is always there and need not be remembered.
    """
    known = sorted(memory.devices.items())
    devices = (json.dumps(_told(place, device)) for (_, place), device in known if place)
    listed = ",\n".join(devices)  # a line each: an indent would take ten times as long
    return f'{{"mode": {json.dumps(memory.mode.value)}, "devices": [\n{listed}\n]}}\n'.encode()


def _told(place: str, device: Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "place": place,
        "resource": device.resource,
        "nodes": [[node.name, node.permissions] for node in device.nodes],
        "numa": device.numa_node,
        "pci": list(device.pci_addresses),
        "card": device.card,
        "interface": device.interface_id,
        "afus": len(device.afu_ids),
    }


def offered(memory: OfferMemory) -> frozenset[str]:
    """The resources that a node offered."""
    if memory.mode is PluginMode.UNITS:
        return frozenset({UNIT_RESOURCE})
    return frozenset(sorted({each.resource for each in memory.devices.values()})[:MOST_RESOURCES])


def decode(content: bytes) -> OfferMemory | None:
    """The memory in some bytes; None where they are none."""
    if len(content) > MAX_BYTES:
        return None
    try:
        document = json.loads(content)
        mode = PluginMode(document["mode"])
        devices = dict(map(_device, document["devices"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return OfferMemory(mode, devices)


def _device(told: Mapping[str, Any]) -> tuple[tuple[str, str], Device]:
    """A device and its place.

    Raises:
        ValueError: It is none; or TypeError, or KeyError.
    """
    numa, afus = told["numa"], told["afus"]
    if numa is not None and not 0 <= int(numa) < MOST_NUMA_NODES:
        raise ValueError(numa)
    if not 0 <= int(afus) <= MOST_AFUS:
        raise ValueError(afus)
    device = Device(
        id=_checked(_TEXT, told["id"]),
        resource=_checked(_RESOURCE, told["resource"]),
        healthy=False,
        nodes=tuple(
            DeviceNode(_checked(_TEXT, name), _checked(_PERMISSIONS, permissions))
            for name, permissions in told["nodes"]
        ),
        numa_node=None if numa is None else int(numa),
        pci_addresses=tuple(_checked(_TEXT, each) for each in told["pci"]),
        card=_checked(_TEXT, told["card"]),
        interface_id=_checked(_INTERFACE, told["interface"]),
        afu_ids=("",) * int(afus),
    )
    return (device.id, _checked(_TEXT, told["place"])), device


def _checked(pattern: re.Pattern[str], text: object) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(text)
    return text
