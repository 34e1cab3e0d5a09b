"""What was offered last, as bytes: a restarted plugin continues where the last one ended.

With this memory (see `services.devices.resources`) a port whose ids can't be read any more stays
under the resource it had. Without it a plugin that was replaced meanwhile would drop the port, and
the kubelet would count it for minutes although no plugin serves it. The memory has what `advertise`
needs to know about a device, and nothing about its health.

    {"mode": "af", "devices": [{"id": "dfl-port.0", "place": "0000:5e:00.0", "resource": …,
      "nodes": [["dfl-port.0", "rw"]], "numa": 0, "pci": ["0000:5e:00.0"], "card": "region0",
      "interface": …, "afus": 1}]}

It also says which resources the kubelet may still count, of any mode: those that are no longer
offered have to be withdrawn (`offered`).

A user who can write the file can only decide under which resource a device is listed as unhealthy,
and which resources are reported as empty. Still nothing in it is trusted: sizes, names and types
are checked, and a file with anything unexpected is ignored.
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

MAX_AFUS = 256
MAX_RESOURCES = 64
"""Resources that are withdrawn: each is served for a while, and takes memory."""
MAX_NUMA_NODES = 1024
_TEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
"""Ids, addresses, names of cards and of nodes; none contains a `/`."""
_RESOURCE = re.compile(
    rf"{re.escape(DOMAIN)}/[A-Za-z0-9][A-Za-z0-9._-]{{0,61}}[A-Za-z0-9]|{re.escape(UNIT_RESOURCE)}"
)
_INTERFACE = re.compile(r"[0-9a-f]{0,64}")
_PERMISSIONS = re.compile(r"[rwm]{1,3}")


def encode(memory: OfferMemory) -> bytes:
    """The memory as bytes, which are the same for the same devices, whatever their health.

    A device without a place, such as a unit, is always there and need not be remembered.
    """
    known = sorted(memory.devices.items())
    devices = (json.dumps(_as_dict(place, device)) for (_, place), device in known if place)
    listed = ",\n".join(devices)  # one line each: indenting would take ten times as long
    return f'{{"mode": {json.dumps(memory.mode.value)}, "devices": [\n{listed}\n]}}\n'.encode()


def _as_dict(place: str, device: Device) -> dict[str, Any]:
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
    return frozenset(sorted({each.resource for each in memory.devices.values()})[:MAX_RESOURCES])


def decode(content: bytes) -> OfferMemory | None:
    """The memory in some bytes; None if they can't be parsed."""
    if len(content) > MAX_BYTES:
        return None
    try:
        document = json.loads(content)
        mode = PluginMode(document["mode"])
        devices = dict(map(_device, document["devices"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return OfferMemory(mode, devices)


def _device(document: Mapping[str, Any]) -> tuple[tuple[str, str], Device]:
    """A device and its place.

    Raises:
        ValueError: It is invalid; or TypeError, or KeyError.
    """
    numa, afus = document["numa"], document["afus"]
    if numa is not None and not 0 <= int(numa) < MAX_NUMA_NODES:
        raise ValueError(numa)
    if not 0 <= int(afus) <= MAX_AFUS:
        raise ValueError(afus)
    device = Device(
        id=_checked(_TEXT, document["id"]),
        resource=_checked(_RESOURCE, document["resource"]),
        healthy=False,
        nodes=tuple(
            DeviceNode(_checked(_TEXT, name), _checked(_PERMISSIONS, permissions))
            for name, permissions in document["nodes"]
        ),
        numa_node=None if numa is None else int(numa),
        pci_addresses=tuple(_checked(_TEXT, each) for each in document["pci"]),
        card=_checked(_TEXT, document["card"]),
        interface_id=_checked(_INTERFACE, document["interface"]),
        afu_ids=("",) * int(afus),
    )
    return (device.id, _checked(_TEXT, document["place"])), device


def _checked(pattern: re.Pattern[str], text: object) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(text)
    return text
