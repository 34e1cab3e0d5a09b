"""Which ports containers have, and which ports a process holds that is in none of these containers.

A process can pass an open port to a process of another pod, over a socket in a shared volume. That
one has the port still when the pod that was given it has ended.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from services.devices.model import Card, Inventory, PciFunction, Port, Problem

HELD: Final = "held-outside-pod"


def lock_of(card: Card) -> str:
    """What tells a card's lock from others: it has one with its virtual functions."""
    physical = card.pci.physfn if card.pci and card.fme is None else None
    return physical or card.address or card.name


def free_ports(inventory: Inventory, allocated: Collection[str]) -> Iterator[tuple[Card, Port]]:
    """The ports that no container has, of cards that are well but for what this module says.

    Args:
        inventory: What a scan found.
        allocated: Ids of all devices of ours that containers have, of whatever resource and mode.
    """
    owners = PortOwners(inventory, frozenset(allocated))
    for card in inventory.cards:
        for port in card.ports if card.failure is None else ():
            is_well = all(problem.reason == HELD for problem in port.problems)
            if is_well and owners.have(card, port) is False:
                yield card, port


def with_held(inventory: Inventory, held: Collection[str]) -> Inventory:
    """What a scan found, with the ports that are held marked as such.

    Args:
        inventory: What the scan found.
        held: Their names.
    """
    if not held:
        return inventory
    return replace(inventory, cards=tuple(_with_held(card, held) for card in inventory.cards))


def _with_held(card: Card, held: Collection[str]) -> Card:
    ports = tuple(
        replace(port, problems=(*port.problems, _problem(port))) if port.name in held else port
        for port in card.ports
    )
    return replace(card, ports=ports)


def _problem(port: Port) -> Problem:
    return Problem(HELD, f"{port.name} is held open by a process outside its pod: no pod has it")


class PortOwners:
    """Which ports containers have, whatever the mode in which they got them.

    A node's mode may have changed since, so every id that a device with the port may have counts:
    the port's name, its engine's, and its PCI address.

    Args:
        inventory: What a scan found.
        allocated: Ids of all devices of ours that containers have, of whatever resource and mode.
    """

    def __init__(self, inventory: Inventory, allocated: frozenset[str]) -> None:
        self._allocated = allocated
        self._units = {key.partition("-")[0] for key in allocated}  # `5e:00.0-1` is on `5e:00.0`
        self._engines = {
            card.address: card.fme.name
            for card in inventory.cards
            if card.fme is not None and card.address
        }

    def have(self, card: Card, port: Port) -> bool | None:
        """Whether a container has a port; None where its region can't be told."""
        engine = card.fme.name if card.fme else self._engine_behind(card.pci)
        if engine is None:
            return None
        addresses = {each.address.removeprefix("0000:") for each in (card.pci, port.pci) if each}
        return not self._allocated.isdisjoint({port.name, engine}) or not self._units.isdisjoint(
            addresses
        )

    def _engine_behind(self, function: PciFunction | None) -> str | None:
        """The engine of a virtual function's physical one."""
        return self._engines.get(function.physfn or "") if function else None
