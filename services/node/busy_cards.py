"""Keeps cards as they were while they are being programmed.

While a card is programmed, its files change: ports vanish for a moment, ids can't be read, and
registers show errors that will be cleared. That says nothing about its health, so the card stays as
the scan before found it until the work has ended. A card that hangs in its driver is unhealthy
until it answers.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from services.devices.model import Card, Inventory, Problem
from services.process.blocking import BlockingCalls

HUNG: Final = "card-hung-in-driver"


class BusyCardFilter:
    """A scan in which cards that are being programmed don't change.

    Args:
        scan: Reads the cards.
        calls: Makes the calls that work on cards, under the key of each card.
    """

    def __init__(self, scan: Callable[[], Inventory], calls: BlockingCalls) -> None:
        self._read_cards = scan
        self._calls = calls
        self._last: dict[tuple[str, str], Card] = {}

    def scan(self) -> Inventory:
        """The cards, in a stable order."""
        before = self._calls.busy
        inventory = self._read_cards()
        busy, stuck = before | self._calls.busy, self._calls.abandoned
        cards = []
        for card in inventory.cards:
            known, key = (card.driver, card.name), _key(card)
            seen = self._last.get(known, card) if key in busy else card
            if key in stuck:
                cards.append(replace(seen, failure=_problem(seen, stuck[key])))
            else:
                cards.append(seen)
            self._last[known] = seen
        present = {(card.driver, card.name) for card in inventory.cards}
        self._last = {known: card for known, card in self._last.items() if known in present}
        return replace(inventory, cards=tuple(cards))


def card_key(card: str) -> str:
    """The key of the calls that work on a card.

    Reading sensors and clearing errors have keys of their own: they must not wait for programming,
    and a card whose sensors are being read isn't one that is worked on.

    Args:
        card: Its PCI address, or its name if it has none.
    """
    return f"card {card}"


def _key(card: Card) -> str:
    """The key of calls on a card; a virtual function shares that of its physical one."""
    if card.fme is None and card.pci is not None and card.pci.physfn:
        return card_key(card.pci.physfn)
    return card_key(card.address or card.name)


def _problem(card: Card, seconds: float) -> Problem:
    return Problem(
        HUNG,
        f"card {card.name} hangs in its driver since {seconds:.0f} s, in a call that was given up;"
        " if it doesn't come back, reset the card or restart the node",
    )
