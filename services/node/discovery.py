"""The discovery loop: reads the cards again and again, and keeps `NodeState` up to date.

`run_once` is one round: scan, decide what to advertise, damp devices that flap.
`rounds` repeats it. If no thread can be started for a scan, that is logged once, and what was known
before stays advertised.

While a card is programmed, its files change: ports vanish for a moment, ids can't be read, and
registers show errors that will be cleared. That says nothing about its health, so the card stays as
the scan before found it until the work has ended. A card that hangs in its driver is unhealthy
until it answers.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog

from services.containers.holders import Holders
from services.devices.damping import Damping, Health, damp
from services.devices.limits import Limits
from services.devices.model import Card, Inventory, PluginMode, Problem
from services.devices.port_owners import with_held_ports
from services.devices.resources import (
    OfferMemory,
    advertise,
    nothing_advertised,
    with_problems,
)
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError

HUNG_IN_DRIVER: Final = "card-hung-in-driver"

log = structlog.get_logger(component="plugin")


class NodeState:
    """What is known of a node now: discovery writes it, everyone else reads it.

    Each value is immutable and replaced as a whole, so threads may read it too.
    """

    def __init__(self, mode: PluginMode) -> None:
        self.inventory: Inventory | None = None
        """What the last scan found; None before the first."""
        self.advertised = nothing_advertised(mode)
        """The devices that the node offers."""
        self.scan_error = ""
        """Why the last scan failed; empty if it didn't."""
        self.rescan = asyncio.Event()
        """Set to ask for a scan before the interval is over; several requests are one scan."""

    def start_mode(self, mode: PluginMode) -> None:
        """Forget what was known in the mode before."""
        self.inventory, self.advertised, self.scan_error = None, nothing_advertised(mode), ""

    def request_rescan(self) -> None:
        """Ask for a scan soon."""
        self.rescan.set()


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
        problems: Sequence[Callable[[], Mapping[str, Problem]]] = (),
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
        problems = {name: problem for find in self._problems for name, problem in find().items()}
        return with_problems(replace(inventory, cards=tuple(cards)), problems, self._limits)


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

    `problems` returns those that depend on the mode, by the name of a port.
    """

    def __init__(
        self,
        state: NodeState,
        *,
        mode: PluginMode,
        units: int,
        interval: float,
        damping: Damping,
        cards: CardReader,
        holders: Callable[[], Awaitable[Holders]],
        observe_seconds: Callable[[float], None],
        problems: Callable[[Inventory], Mapping[str, Problem]] = lambda _: {},
    ) -> None:
        self._state = state
        self._mode = mode
        self._units = units
        self._interval = interval
        self._damping = damping
        self._health = Health()
        self._cards = cards
        self._holders = holders
        self._observe_seconds = observe_seconds
        self._problems = problems

    async def rounds(self) -> AsyncIterator[NodeState]:
        """Scan until cancelled; return the state after each scan that didn't fail."""
        while True:
            self._state.rescan.clear()
            try:
                await self.run_once()
            except HardwareError as error:
                self._log_failure(str(error))
            else:
                yield self._state
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._state.rescan.wait()

    def restore(self, memory: OfferMemory) -> None:
        """Continue from what was offered before: by another process, or in another mode."""
        self._state.advertised = replace(self._state.advertised, memory=memory.for_mode(self._mode))

    async def run_once(self) -> None:
        """Scan once and update the state.

        Raises:
            HardwareError: No thread can be started to read the cards.
        """
        state = self._state
        inventory = await self._inventory()
        advertised = advertise(
            inventory, self._mode, units=self._units, previous=state.advertised.memory
        )
        if state.scan_error:
            log.info("scans answer again")
        state.scan_error = ""
        advertised = with_held_ports(advertised, inventory, await self._holders())
        advertised, self._health = damp(
            advertised, self._health, self._damping, now=time.monotonic()
        )
        if advertised != state.advertised:
            state.advertised = advertised
        state.inventory = inventory

    async def _inventory(self) -> Inventory:
        if self._mode is PluginMode.UNITS:
            return Inventory()
        started = time.perf_counter()
        inventory = await self._cards.read()
        self._observe_seconds(time.perf_counter() - started)
        return with_problems(inventory, self._problems(inventory), Limits())

    def _log_failure(self, error: str) -> None:
        write = log.debug if error == self._state.scan_error else log.error
        write("scan failed, the last known devices stay offered", reason=error)
        self._state.scan_error = error
