"""Which error registers of ports to clear: those that a container left and nobody has any more.

A port's errors stay until they are written away (`drivers/fpga/dfl-afu-error.c`), so a workload
that provokes one would retire the port for ever. The errors of a port that nobody has are therefore
cleared, each value once: what comes back without a container is the card's own trouble, and the
port stays unhealthy. Once the port has been given to a container again, what that one leaves is a
new matter.

Nothing is cleared while it isn't known which devices are allocated or which region a port is part
of, nor on a card that doesn't answer: all ones are what a read from a dead device gives.

The state is a value: `choose` gives the next one, and the caller hands it back with the next scan.
What was chosen counts as tried, whatever comes of the write, unless the port was busy.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from services.devices.model import Card, Inventory, Port
from services.devices.port_owners import PortOwners, lock_of

MAX_VALUES = 8
"""Values cleared of one port while nobody has it: one that makes up new ones is broken."""

ALL_ONES = frozenset({2**32 - 1, 2**64 - 1})

_DEAD = ("-all-f", "-unreadable")
"""How the reasons end of which the card as a whole is likely the cause."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """An error register to clear."""

    driver: str
    """Driver of the port's card, `opae` or `dfl`."""
    card: str
    """Name of the card's class entry, in which the port's folder is."""
    port: str
    """Name of the port."""
    value: int
    """What the register read; another one must not be cleared unseen."""
    lock: str = ""
    """What tells the card's lock from others, as `services.programming.programmer` names it."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What has been tried of the ports that nobody has had since."""

    values: Mapping[tuple[str, str], frozenset[int]] = field(default_factory=dict)
    """Values tried, by the place of a card and the name of its port."""

    def without(self, port: str, value: int) -> "Tried":
        """The same, without what could not be tried since the port was busy.

        Args:
            port: The port's name.
            value: The value.
        """
        values = {
            key: each - {value} if key[1] == port else each for key, each in self.values.items()
        }
        return Tried({key: each for key, each in values.items() if each})


def choose(
    inventory: Inventory, allocated: Collection[str] | None, tried: Tried
) -> tuple[tuple[Clearing, ...], Tried]:
    """The registers to clear now.

    Args:
        inventory: What a scan found.
        allocated: Ids of all devices of ours that containers have, of whatever resource and mode;
            None if that isn't known, and then nothing is cleared.
        tried: What the last call gave; `Tried()` before the first.

    Returns:
        What to clear, and what the next call needs.
    """
    if allocated is None:
        return (), tried
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
    """What still counts: of ports that are there, and of cards that can't tell now.

    A card that fails for a while must not have its errors cleared over and over.
    """
    there = {(card.place, port.name) for card in cards for port in card.ports}
    silent = {card.place for card in cards if card.failure is not None}
    return {key: each for key, each in tried.values.items() if key in there or key[0] in silent}
