"""Which cards of a node belong together: a virtual function and the card that it was split from.

The engine stays on the physical function, which a virtual one names by its PCI address.
"""

from collections.abc import Iterable

from services.devices.model import Card, Port
from services.process.problem import Problem


class Topology:
    """The cards of a node, related to each other through their PCI addresses."""

    def __init__(self, cards: Iterable[Card]) -> None:
        self._engines: dict[str, Card] = {}
        self._virtual: dict[str, list[Card]] = {}
        self._failures: dict[str, Problem] = {}
        for card in cards:
            if card.failure is not None and card.address:
                self._failures[card.address] = card.failure
            if card.fme is not None and card.address:
                self._engines.setdefault(card.address, card)
            elif physical := physical_address(card):
                self._virtual.setdefault(physical, []).append(card)

    def physical(self, card: Card) -> Card:
        """The card that has the engine: the one on its physical function, or itself."""
        return self._engines.get(physical_address(card), card)

    def members(self, card: Card) -> tuple[Card, ...]:
        """A card and the virtual functions split from it."""
        return (card, *self._virtual.get(card.address, ()))

    def ports(self, card: Card) -> tuple[Port, ...]:
        """The ports of a card, with those on the virtual functions split from it."""
        return tuple(port for member in self.members(card) for port in member.ports)

    def physical_failure(self, card: Card) -> Problem | None:
        """Why the card on a virtual function's physical one can't be read, if so."""
        return self._failures.get(physical_address(card))


def physical_address(card: Card) -> str:
    """The PCI address of a virtual function's physical one; empty for another card."""
    return (card.pci.physfn or "") if card.fme is None and card.pci is not None else ""


def lock_of(card: Card) -> str:
    """The name of a card's lock, which it shares with its virtual functions."""
    return physical_address(card) or card.place


def card_key(card: str) -> str:
    """The key of the calls that work on a card: its PCI address, or its name if it has none."""
    # Reading sensors and clearing errors have keys of their own: they must not wait for
    # programming, and a card that is only read isn't one that is worked on.
    return f"card {card}"


def record_key(card: Card, port: Port) -> str:
    """Identify a port in the records of programming, whatever its name in this boot."""
    return f"{lock_of(card)}-port{port.number}"
