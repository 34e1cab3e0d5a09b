"""Which error registers of ports to clear: those that a container left behind.

A port's errors stay until they are cleared (`drivers/fpga/dfl-afu-error.c`), so a workload that
provokes one would make the port unhealthy for ever. The errors of a port that nobody has are
therefore cleared, each value once.
"""

from typing import TypeAlias

from services.devices.held import Allocated, held_parts, port_resources
from services.devices.model import Card, Inventory, Port
from services.devices.topology import Topology

MAX_VALUES = 8
"""Values cleared of one port while nobody has it: a port with ever new errors is broken."""

# What a read from a dead device gives.
ALL_ONES = frozenset({2**32 - 1, 2**64 - 1})

_DEAD = ("-all-f", "-unreadable")
"""Endings of reasons that are likely caused by the card as a whole."""

Tried: TypeAlias = frozenset[tuple[str, str, int]]
"""Values tried on ports that nobody has had since, behind a card's place and a port's name."""


def choose(
    inventory: Inventory, allocated: Allocated, tried: Tried
) -> tuple[list[tuple[Card, Port]], Tried]:
    """The ports whose error register to clear now, and what the next call needs.

    They count as tried, whether the write works or not.
    """
    held, node = held_parts(allocated), Topology(inventory.cards)
    chosen: list[tuple[Card, Port]] = []
    # A card that fails for a while must not have its errors cleared over and over.
    silent = {card.place for card in inventory.cards if card.failure is not None}
    values = {each for each in tried if each[0] in silent}
    for card in inventory.cards:
        for port in card.ports:
            before = {each for each in tried if each[:2] == (card.place, port.name)}
            value = _clearable(port)
            owned = port_resources(held, node, card, port) if before or value else None
            if owned:
                continue  # once it is free again, the count starts over
            values |= before
            key = card.place, port.name, value
            # None: it is unknown which region the port is part of. An error that comes back without
            # a container is the card's own.
            if value and owned is not None and key not in before and len(before) < MAX_VALUES:
                values.add(key)
                chosen.append((card, port))
    return chosen, frozenset(values)


def untried(tried: Tried, card: Card, port: Port) -> Tried:
    """The same, without the errors of a port that was busy, so that they could not be cleared."""
    return tried - {(card.place, port.name, port.errors or 0)}


def _clearable(port: Port) -> int:
    """The errors of a port; 0 if there are none, or none that a write would clear."""
    if any(problem.reason.endswith(_DEAD) for problem in port.problems):
        return 0
    return 0 if port.errors in ALL_ONES else port.errors or 0
