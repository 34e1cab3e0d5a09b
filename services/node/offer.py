"""What was offered last, as bytes: a restarted plugin continues where the last one ended.

With this memory (see `services.devices.resources`) a port whose ids can't be read any more stays
under the resource it had. Without it a plugin that was replaced meanwhile would drop the port, and
the kubelet would count it for minutes although no plugin serves it. The memory has what `advertise`
needs to know about a device, and nothing about its health.

    {"mode":"af","devices":[{"id":"dfl-port.0","place":"0000:5e:00.0","resource":…,
      "nodes":[["dfl-port.0","rw"]],"numa":0,"pci":["0000:5e:00.0"],"card":"region0",
      "interface":…,"afus":1}]}

It also says which resources the kubelet may still count, of any mode: those that are no longer
offered have to be withdrawn (`offered`).

A user who can write the file can only decide under which resource a device is listed as unhealthy,
and which resources are reported as empty. Still nothing in it is trusted: sizes, names and types
are checked, and a file with anything unexpected is ignored.
"""

import re
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from services.devices.model import Device, PluginMode
from services.devices.resources import OfferMemory
from services.names import DOMAIN, UNIT_RESOURCE

MAX_BYTES = 4 << 20
"""Room for ten thousand devices."""

MAX_RESOURCES = 64
"""Resources that are withdrawn: each is served for a while, and takes memory."""

_Text: TypeAlias = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")]
"""Ids, addresses, names of cards and of nodes; none contains a `/`."""
_RESOURCE = (
    rf"\A(?:{re.escape(DOMAIN)}/[A-Za-z0-9][A-Za-z0-9._-]{{0,61}}[A-Za-z0-9]"
    rf"|{re.escape(UNIT_RESOURCE)})\Z"
)


class _Device(msgspec.Struct):
    id: _Text
    place: _Text
    resource: Annotated[str, Meta(pattern=_RESOURCE)]
    nodes: list[tuple[_Text, Literal["rw"]]]
    """Names and permissions."""
    numa: Annotated[int, Meta(ge=0, lt=1024)] | None
    pci: list[_Text]
    card: _Text
    interface: Annotated[str, Meta(pattern=r"\A[0-9a-f]{0,64}\Z")]
    afus: Annotated[int, Meta(ge=0, le=256)]


class _Offer(msgspec.Struct):
    mode: PluginMode
    devices: list[_Device]


_DECODER = msgspec.json.Decoder(_Offer)


def encode(memory: OfferMemory) -> bytes:
    """The memory as bytes, which are the same for the same devices, whatever their health.

    A device without a place, such as a unit, is always there and need not be remembered.
    """
    devices = [
        _Device(
            device.id,
            place,
            device.resource,
            [(node, "rw") for node in device.nodes],
            device.numa_node,
            list(device.pci_addresses),
            device.card,
            device.interface_id,
            len(device.afu_ids),
        )
        for (_, place), device in sorted(memory.devices.items())
        if place
    ]
    return msgspec.json.encode(_Offer(memory.mode, devices))


def decode(content: bytes) -> OfferMemory | None:
    """The memory in some bytes; None if they can't be parsed."""
    if len(content) > MAX_BYTES:
        return None
    try:
        found = _DECODER.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return OfferMemory(found.mode, {(each.id, each.place): _device(each) for each in found.devices})


def offered(memory: OfferMemory) -> frozenset[str]:
    """The resources that a node offered."""
    if memory.mode is PluginMode.UNITS:
        return frozenset({UNIT_RESOURCE})
    return frozenset(sorted({each.resource for each in memory.devices.values()})[:MAX_RESOURCES])


def _device(found: _Device) -> Device:
    return Device(
        id=found.id,
        resource=found.resource,
        healthy=False,
        nodes=tuple(name for name, _ in found.nodes),
        numa_node=found.numa,
        pci_addresses=tuple(found.pci),
        card=found.card,
        interface_id=found.interface,
        afu_ids=("",) * found.afus,
    )
