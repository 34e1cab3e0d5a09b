"""Which ports containers have, and which lock a card has."""

from services.devices.model import Card, Inventory, Port
from services.devices.topology import Topology, physical_address


def lock_of(card: Card) -> str:
    """The name of a card's lock, which it shares with its virtual functions."""
    return physical_address(card) or card.place


class PortOwners:
    """Which ports containers have, whatever the mode in which they got them.

    A node's mode may have changed since, so every id that a device with the port may have counts:
    the port's name, its engine's, and its PCI address.
    """

    def __init__(self, inventory: Inventory, allocated: frozenset[str]) -> None:
        self._allocated = allocated
        self._units = {key.partition("-")[0] for key in allocated}  # `5e:00.0-1` is on `5e:00.0`
        self._node = Topology(inventory.cards)

    def have(self, card: Card, port: Port) -> bool | None:
        """Whether a container has a port; None if its region is unknown."""
        engine = self._node.physical(card).fme
        if engine is None:
            return None
        addresses = {each.address.removeprefix("0000:") for each in (card.pci, port.pci) if each}
        has_device = not self._allocated.isdisjoint({port.name, engine.name})
        return has_device or not self._units.isdisjoint(addresses)
