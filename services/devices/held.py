"""Which devices, ports and functions containers have, whatever the mode in which they got them."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

from services.devices.model import (
    NODE_MARK,
    REPLICA,
    Card,
    Device,
    Inventory,
    Port,
    VirtualFunction,
)
from services.names import dns_label

HELD: Final = "held-as-other-resource"

Allocated: TypeAlias = Collection[tuple[str, str]]
"""Devices that containers have: full resource name and id."""

Parts: TypeAlias = Mapping[str, frozenset[tuple[str, str]]]
"""The same (resource and id) by the ids of devices and of the parts that these share."""

_NODE: Final = re.compile(rf"{NODE_MARK}.+$")
"""The end of the id of a device that is one node of a card."""
_SUFFIX: Final = re.compile(rf"{REPLICA.pattern}|(?<=\.\d)-\d+$")
"""The same, and in mode bdf what distinguishes the ports of a function: `5e:00.0-1`."""
_NUMBER: Final = re.compile(r"\d+:\d+")
"""The claim of a device node, as against that of a PCI function or USB port."""


def held_parts(allocated: Allocated) -> Parts:
    """The devices of containers, by the ids of devices and parts."""
    held: dict[str, set[tuple[str, str]]] = {}
    for resource, key in allocated:
        for each in {key, _SUFFIX.sub("", key), _NODE.sub("", key)}:
            held.setdefault(each, set()).add((resource, key))
    return {part: frozenset(each) for part, each in held.items()}


def possible_ids(device: Device) -> set[str]:
    """The ids by which a container may have a device or a part of it, whatever the mode."""
    claims = [each for each in device.claims if not is_number(each)]
    own = {device.id, whole_id(device.id), _NODE.sub("", device.id)}
    return own | {*claims, *map(dns_label, claims)}


def is_number(claim: str) -> bool:
    """Whether a claim of a device is the number of a device node, `238:0`."""
    return bool(_NUMBER.fullmatch(claim))


def is_other_node(key: str, device: Device) -> bool:
    """Whether an id is that of another node of the card of which a device is one node."""
    one, other = whole_id(key), device.whole_id
    return (
        _NODE.sub("", one) == device.card_id and NODE_MARK in one and one != other != device.card_id
    )


def whole_id(key: str) -> str:
    """The id of a device without what distinguishes its replicas."""
    return REPLICA.sub("", key)


def port_resources(
    held: Parts, inventory: Inventory, card: Card, port: Port
) -> frozenset[str] | None:
    """The resources under which containers have a port; None if its region is unknown."""
    engine = inventory.physical(card).fme
    if engine is None:
        return None
    functions = [function.address for function in (card.pci, port.pci) if function]
    # The node's mode may have changed since, so the ids of every mode count.
    names = {port.name, engine.name, *(each.removeprefix("0000:") for each in functions)}
    return _resources(held, {*names, *(each.id for each in card.functions or ())})


def card_resources(held: Parts, inventory: Inventory, card: Card) -> frozenset[str]:
    """The resources under which containers have a card, or any part of it."""
    members = inventory.members(card)
    parts = {part.name for each in members for part in (each.fme, *each.ports) if part}
    addresses = {each.address.removeprefix("0000:") for each in members}
    return _resources(held, parts | addresses | {each.id for each in card.functions or ()})


def function_resources(held: Parts, card: Card, function: VirtualFunction) -> frozenset[str]:
    """The resources under which containers have a virtual function of an OFS card."""
    return _resources(held, {function.id, *([card.fme.name] if card.fme else ())})


def _resources(held: Parts, names: Iterable[str]) -> frozenset[str]:
    return frozenset(resource for name in names for resource, _ in held.get(name, ()))


def held_functions(cards: Iterable[Card], held: Parts) -> frozenset[str]:
    """The addresses of the virtual functions of OFS cards that containers have."""
    return frozenset(
        function.pci.address
        for card in cards
        for function in card.functions or ()
        if function_resources(held, card, function)
    )
