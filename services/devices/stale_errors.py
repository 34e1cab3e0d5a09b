"""Which error registers of ports to clear: those that a container left behind.

A port's errors stay until they are cleared (`drivers/fpga/dfl-afu-error.c`), so a workload that
provokes one would make the port unhealthy for ever. The errors of a port that nobody has are
therefore cleared, each value once. An error that comes back without a container is the card's own,
and the port stays unhealthy. Once a container has had the port again, the count starts over.

Nothing is cleared while it is unknown which devices are allocated or which region a port is part
of, nor on a card that doesn't answer: a read from a dead device gives all ones.

The state is a value: `choose` gives the next one, and the caller passes it with the next scan. What
was chosen counts as tried, whether the write works or not, unless the port was busy.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from services.devices.model import Card, Inventory, Port
from services.devices.port_owners import PortOwners, lock_of

MAX_VALUES = 8
"""Values cleared of one port while nobody has it: a port with ever new errors is broken."""

ALL_ONES = frozenset({2**32 - 1, 2**64 - 1})

_DEAD = ("-all-f", "-unreadable")
"""Endings of reasons that are likely caused by the card as a whole."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """The error register of a port to clear; driver, card and port are names."""

    driver: str
    card: str
    port: str
    value: int
    """What the register read; another one must not be cleared unseen."""
    lock: str = ""
    """Name of the card's lock (`lock_of`)."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What has been tried on ports that nobody has had since."""

    values: Mapping[tuple[str, str], frozenset[int]] = field(default_factory=dict)
    """Values tried, by the place of a card and the name of its port."""

    def without(self, port: str, value: int) -> "Tried":
        """The same, without the value of a port that was busy, so that it could not be tried."""
        values = {
            key: each - {value} if key[1] == port else each for key, each in self.values.items()
        }
        return Tried({key: each for key, each in values.items() if each})


def choose(
    inventory: Inventory, allocated: Collection[str], tried: Tried
) -> tuple[tuple[Clearing, ...], Tried]:
    """The registers to clear now, and what the next call needs.

    Args:
        inventory: What a scan found.
        allocated: Ids of all our devices that containers have, of any resource and mode.
        tried: The result of the last call; `Tried()` before the first.
    """
    owners = PortOwners(inventory, frozenset(allocated))
    clearings: list[Clearing] = []
    values = _kept(inventory.cards, tried)
    for card in inventory.cards:
        for port in card.ports:
            key = card.place, port.name
            before, value = values.get(key, frozenset()), _clearable(port)
            if not before and not value:
                continue
            owned = owners.have(card, port)
            if owned:
                values.pop(key, None)
            elif owned is False and value not in {0, *before} and len(before) < MAX_VALUES:
                values[key] = before | {value}
                lock = lock_of(card)
                clearings.append(Clearing(card.driver, card.name, port.name, value, lock))
    return tuple(clearings), Tried(values)


def _clearable(port: Port) -> int:
    """The errors of a port; 0 if there are none, or none that a write would clear."""
    if any(problem.reason.endswith(_DEAD) for problem in port.problems):
        return 0
    return 0 if port.errors in ALL_ONES else port.errors or 0


def _kept(cards: Iterable[Card], tried: Tried) -> dict[tuple[str, str], frozenset[int]]:
    """What still counts: of ports that are there, and of cards that can't be read now.

    A card that fails for a while must not have its errors cleared over and over.
    """
    there = {(card.place, port.name) for card in cards for port in card.ports}
    silent = {card.place for card in cards if card.failure is not None}
    return {key: each for key, each in tried.values.items() if key in there or key[0] in silent}
