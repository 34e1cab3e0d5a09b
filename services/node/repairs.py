"""Which ports of cards to repair: those whose last container left errors, or left them disabled.

A port's errors stay until they are cleared (`drivers/fpga/dfl-afu-error.c`), so a workload that
provokes one would make the port unhealthy for ever. A port that its driver keeps disabled after a
failed programming stays so until the card's driver is rebound. Both are done while nobody has
the port, each error and each disabled card once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from services.devices.health import unusable
from services.devices.held import Parts, port_resources
from services.devices.model import Card, Inventory, Port

MAX_VALUES: Final = 8
"""Values cleared of one port while nobody has it: a port with ever new errors is broken."""

ALL_ONES: Final = frozenset({2**32 - 1, 2**64 - 1})
"""Values that a dead device reads as."""

_DEAD: Final = ("-all-f", "-unreadable")
"""Endings of reasons that are likely caused by the card as a whole."""

Attempt: TypeAlias = tuple[str, str, int]
"""A repair that was tried: a card's place, a port's name, and the value of its error register; 0
stands for enabling the ports of the card."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The outcome of a repair."""

    part: str
    """The port."""
    done: bool = False
    """Whether anything was changed."""
    error: str = ""
    """Why it failed; empty if it didn't."""
    is_due: bool = False
    """Whether it is tried again, since somebody had the port."""


Attempts: TypeAlias = Mapping[Attempt, Tried]


@dataclass(frozen=True, slots=True)
class Repairs:
    """Ports to repair now."""

    errors: tuple[tuple[Card, Port], ...] = ()
    """Ports whose error register to clear."""
    disabled: tuple[tuple[Card, Port], ...] = ()
    """A disabled port of each card whose driver to rebind."""


def clearing(card: Card, port: Port) -> Attempt:
    """The clearing of a port's errors."""
    return card.place, port.name, port.errors or 0


def enabling(card: Card) -> Attempt:
    """The enabling of a card's ports."""
    return card.place, "", 0


def still_tried(tried: Attempts, inventory: Inventory, held: Parts) -> Attempts:
    """The attempts that count, since nobody has had the port and it was not well in between."""
    cards = inventory.cards
    # A card that fails for a while must not have its errors cleared over and over.
    silent = {card.place for card in cards if card.failure is not None}
    free = {
        (card.place, port.name)
        for card in cards
        for port in card.ports
        if not port_resources(held, inventory, card, port)
    }
    disabled = {enabling(card) for card in cards if _disabled(card) is not None}
    return {
        each: outcome
        for each, outcome in tried.items()
        if (each in disabled if not each[1] else each[0] in silent or each[:2] in free)
    }


def repairs(inventory: Inventory, held: Parts, tried: Attempts) -> Repairs:
    """The ports to repair, given the devices of containers and the attempts that count."""
    cards = inventory.cards
    over = {each for each, outcome in tried.items() if not outcome.is_due}

    def is_free(card: Card, port: Port) -> bool:
        # None: it is unknown which region the port is part of.
        return port_resources(held, inventory, card, port) == frozenset()

    errors = tuple(
        (card, port)
        for card in cards
        for port in card.ports
        # An error that comes back without a container is the card's own.
        if _clearable(port) and clearing(card, port) not in over
        if sum(each[:2] == (card.place, port.name) for each in over) < MAX_VALUES
        if is_free(card, port)
    )
    disabled = tuple(
        (card, port)
        for card in cards
        if (port := _disabled(card)) is not None
        if enabling(card) not in over and all(is_free(card, each) for each in card.ports)
    )
    return Repairs(errors, disabled)


def _clearable(port: Port) -> bool:
    """Whether a port has errors that a write would clear."""
    if any(problem.code.endswith(_DEAD) for problem in port.problems):
        return False
    return bool(port.errors) and port.errors not in ALL_ONES


def _disabled(card: Card) -> Port | None:
    """The first disabled port of a card."""
    return next(filter(unusable, card.ports), None)
