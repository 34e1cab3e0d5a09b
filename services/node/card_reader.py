"""Reads the cards of a node as they count.

While a card is programmed, its files change: ports vanish for a moment, ids can't be read, and
registers show errors that will be cleared. That says nothing about its health, so the card stays as
the scan before found it until the work has ended. A card that hangs in its driver is unhealthy
until it answers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from services.devices.limits import Limits
from services.devices.model import Card, Inventory, Problem
from services.devices.resources import with_problems
from services.process.blocking import BlockingCalls

HUNG_IN_DRIVER: Final = "card-hung-in-driver"

FindProblems: TypeAlias = Callable[[Inventory], Mapping[str, Problem]]
"""Finds problems known besides the scan's, by the name of a card or port."""


class CardReader:
    """Reads the cards as they count: those that are being programmed don't change.

    `calls` makes the calls that work on cards, under the key of each card. `problems` return what
    is known besides, by the name of a card or port.
    """

    def __init__(
        self,
        scan: Callable[[], Awaitable[Inventory]],
        calls: BlockingCalls,
        limits: Limits | None = None,
        problems: Sequence[FindProblems] = (),
    ) -> None:
        self._scan = scan
        self._calls = calls
        self._limits = limits or Limits()
        self._problems = problems
        self._last: dict[tuple[str, str], Card] = {}

    async def read(self) -> Inventory:
        """The cards, in a stable order."""
        before = self._calls.busy
        inventory = await self._scan()
        busy, stuck = before | self._calls.busy, self._calls.abandoned
        cards, last = [], {}
        for card in inventory.cards:
            known, key = (card.driver, card.name), _key(card)
            seen = last[known] = self._last.get(known, card) if key in busy else card
            if key in stuck:
                seen = replace(seen, failure=_hung(seen, stuck[key]))
            cards.append(seen)
        self._last = last
        inventory = replace(inventory, cards=tuple(cards))
        problems: dict[str, Problem] = {}
        for find in self._problems:
            problems |= find(inventory)
        return with_problems(inventory, problems, self._limits)


def card_key(card: str) -> str:
    """The key of the calls that work on a card.

    Reading sensors and clearing errors have keys of their own: they must not wait for programming,
    and a card whose sensors are being read isn't one that is worked on. `card` is its PCI address,
    or its name if it has none.
    """
    return f"card {card}"


def _key(card: Card) -> str:
    """The key of calls on a card; a virtual function shares that of its physical one."""
    if card.fme is None and card.pci is not None and card.pci.physfn:
        return card_key(card.pci.physfn)
    return card_key(card.address or card.name)


def _hung(card: Card, seconds: float) -> Problem:
    return Problem(
        HUNG_IN_DRIVER,
        f"card {card.name} hangs in its driver since {seconds:.0f} s, in a call that was given up;"
        " if it doesn't come back, reset the card or restart the node",
    )
