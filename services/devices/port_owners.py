"""Which ports containers have, and which ports are held by a process outside of these containers.

A process can pass an open port to a process of another pod, over a socket in a shared volume. The
other process still has the port when the pod that was given it has ended.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from services.devices.model import Card, Inventory, Port, Problem
from services.devices.topology import Topology, physical_address

HELD: Final = "held-outside-pod"


def lock_of(card: Card) -> str:
    """The name of a card's lock, which it shares with its virtual functions."""
    return physical_address(card) or card.place


def free_ports(inventory: Inventory, allocated: Collection[str]) -> Iterator[tuple[Card, Port]]:
    """The healthy ports that no container has; the problem `HELD` does not count."""
    owners = PortOwners(inventory, frozenset(allocated))
    for card in inventory.cards:
        for port in card.ports if card.failure is None else ():
            is_well = all(problem.reason == HELD for problem in port.problems)
            if is_well and owners.have(card, port) is False:
                yield card, port


def held_problems(held: Iterable[str]) -> dict[str, Problem]:
    """The problem of each port of these names, by name."""
    text = "is held open by a process outside its pod: no pod has it"
    return {name: Problem(HELD, f"{name} {text}") for name in held}


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
