"""The discovery loop: reads the cards again and again, and keeps `NodeState` up to date.

`run_once` is one round: scan, decide what to advertise, damp devices that flap. If no thread can be
started for a scan, what was known before stays advertised.

While a card is programmed, its files change: ports vanish for a moment, ids can't be read, and
registers show errors that will be cleared. That says nothing about its health, so the card stays as
the scan before found it until the work has ended. A card that hangs in its driver is unhealthy
until it answers.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NoReturn, TypeAlias

import structlog

from services.containers.holders import Holders
from services.devices.damping import Damping, Health, damp
from services.devices.limits import Limits
from services.devices.model import Card, Inventory, PluginMode, Problem
from services.devices.port_owners import with_held_ports
from services.devices.resources import advertise, with_problems
from services.node.state import NodeState, OnScan
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.process.outage import Outage

HUNG_IN_DRIVER: Final = "card-hung-in-driver"

log = structlog.get_logger(component="plugin")


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


class Discovery:
    """Finds out what this node has in one mode; every `interval` seconds, or on request.

    `holders` returns which containers have devices. After each scan that didn't fail, `on_scan` are
    called in their order.
    """

    def __init__(
        self,
        state: NodeState,
        *,
        units: int,
        interval: float,
        damping: Damping,
        cards: CardReader,
        holders: Callable[[], Awaitable[Holders]],
        observe_seconds: Callable[[float], None],
        on_scan: Sequence[OnScan] = (),
    ) -> None:
        self._state = state
        self._units = units
        self._interval = interval
        self._damping = damping
        self._health = Health()
        self._cards = cards
        self._holders = holders
        self._observe_seconds = observe_seconds
        self._on_scan = on_scan
        self._outage = Outage(
            log,
            "scan failed, the last known devices stay offered",
            "scans answer again",
            level="error",
        )

    async def scan_forever(self) -> NoReturn:
        """Scan until cancelled, first at once."""
        self._state.rescan.request()
        await self._state.rescan.run_forever(self.run_once, interval=lambda: self._interval)

    async def run_once(self) -> None:
        """Scan once, update the state, and call who is interested."""
        state = self._state
        try:
            inventory = await self._inventory()
        except HardwareError as error:
            state.scan_error = str(error)
            self._outage.failed(state.scan_error)
            return
        state.scan_error = ""
        self._outage.ended()
        advertised = advertise(
            inventory, state.mode, units=self._units, previous=state.advertised.memory
        )
        advertised = with_held_ports(advertised, inventory, await self._holders())
        advertised, self._health = damp(
            advertised, self._health, self._damping, now=time.monotonic()
        )
        if advertised != state.advertised:
            state.advertised = advertised
        state.inventory = inventory
        for on_scan in self._on_scan:
            on_scan(state)

    async def _inventory(self) -> Inventory:
        if self._state.mode is PluginMode.UNITS:
            return Inventory()
        started = time.perf_counter()
        inventory = await self._cards.read()
        self._observe_seconds(time.perf_counter() - started)
        return inventory
