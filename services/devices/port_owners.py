"""Which ports containers have, and which lock and key of calls a card has."""

from collections.abc import Iterable

from services.devices.model import (
    Card,
    Device,
    Inventory,
    Port,
    VirtualFunction,
)
from services.devices.ofs import is_in_use
from services.devices.provider import Allocated
from services.devices.topology import Topology, physical_address
from services.names import FUNCTION_PREFIX


def lock_of(card: Card) -> str:
    """The name of a card's lock, which it shares with its virtual functions."""
    return physical_address(card) or card.place


def card_key(card: str) -> str:
    """The key of the calls that work on a card: its PCI address, or its name if it has none."""
    # Reading sensors and clearing errors have keys of their own: they must not wait for
    # programming, and a card that is only read isn't one that is worked on.
    return f"card {card}"


class PortOwners:
    """Which ports containers have, whatever the mode in which they got them."""

    def __init__(self, inventory: Inventory, allocated: Allocated) -> None:
        self._resources: dict[str, set[str]] = {}
        for resource, device in allocated:
            for name in {device, device.partition("-")[0]}:  # `5e:00.0-1` is on `5e:00.0`
                self._resources.setdefault(name, set()).add(resource)
        self._node = Topology(inventory.cards)

    def resources(self, card: Card, port: Port) -> frozenset[str] | None:
        """The resources under which containers have a port; None if its region is unknown."""
        engine = self._node.physical(card).fme
        if engine is None:
            return None
        functions = [function.address for function in (card.pci, port.pci) if function]
        # The node's mode may have changed since, so the ids of every mode count.
        names = {port.name, engine.name, *(each.removeprefix("0000:") for each in functions)}
        return self._of({*names, *(each.id for each in card.functions or ())})

    def of_function(self, card: Card, function: VirtualFunction) -> frozenset[str]:
        """The resources under which containers have a virtual function of an OFS card."""
        return self._of({function.id, *([card.fme.name] if card.fme else ())})

    def _of(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*(self._resources.get(name, ()) for name in names))


def held_functions(inventory: Inventory, allocated: Allocated) -> frozenset[str]:
    """The addresses of the virtual functions of OFS cards that containers have."""
    owners = PortOwners(inventory, allocated)
    return frozenset(
        function.pci.address
        for card in inventory.cards
        for function in card.functions or ()
        if owners.of_function(card, function)
    )


def with_held_functions(
    last: Iterable[Device], inventory: Inventory, allocated: Allocated
) -> list[Device]:
    """What mode af offered last, with functions that containers had before this process started."""
    owners = PortOwners(inventory, allocated)
    # Which AFU is behind one can't be read meanwhile. It stays, unhealthy, under the resource that
    # the kubelet knows it by: without that its container could not start again.
    held = [
        Device(function.id, resource, place=card.place)
        for card in inventory.cards
        for function in card.functions or ()
        if is_in_use(function)
        for resource in owners.of_function(card, function)
        if resource.startswith(FUNCTION_PREFIX)
    ]
    return [*held, *last]
