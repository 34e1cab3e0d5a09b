"""The provider of FPGAs: reads the cards, and makes devices of them as the node's mode says."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final, TypeAlias

from services.containers.holders import Holders
from services.devices.hardware.afu_ids import AfuIds
from services.devices.hardware.events import FPGA_SUBSYSTEMS
from services.devices.ignored import Ignored
from services.devices.model import Card, Device, Inventory, PluginMode, Problem
from services.devices.port_owners import (
    card_key,
    held_functions,
    lock_of,
    with_held_functions,
)
from services.devices.provider import Found
from services.devices.resources import fpga_devices, with_problems
from services.process.blocking import BlockingCalls

HUNG_IN_DRIVER: Final = "card-hung-in-driver"

FindProblems: TypeAlias = Callable[[Inventory], Mapping[str, Problem]]
"""Finds problems known besides the scan's, by the name of a card or port."""


class FpgaProvider:
    """Finds the devices of a node's cards in one mode; `calls` are those that work on cards."""

    name = "fpga"
    subsystems = FPGA_SUBSYSTEMS

    def __init__(
        self,
        mode: PluginMode,
        *,
        units: int,
        scan: Callable[[], Awaitable[Inventory]],
        calls: BlockingCalls,
        ignored_errors: Ignored,
        problems: Sequence[FindProblems] = (),
        holders: Callable[[], Awaitable[Holders]],
        afu_ids: AfuIds,
        observe_seconds: Callable[[float], None],
    ) -> None:
        self._mode = mode
        self._units = units
        self._scan = scan
        self._calls = calls
        self._ignored_errors = ignored_errors
        self._problems = problems
        self._holders = holders
        self._afu_ids = afu_ids
        self._observe_seconds = observe_seconds
        self._last: dict[tuple[str, str], Card] = {}
        """The cards as they counted last."""
        self._offered: Sequence[Device] = ()
        """The devices that had a resource last."""

    async def devices(self) -> Found:
        """As `Provider` says."""
        inventory = Inventory()
        if self._mode.has_cards:
            started = perf_counter()
            inventory = await self._read_cards()
            self._observe_seconds(perf_counter() - started)
        if self._mode is PluginMode.AF:
            holders = await self._holders()
            in_use = held_functions(inventory, holders)
            inventory = await self._afu_ids.identify(inventory, in_use)
            self._offered = with_held_functions(self._offered, inventory, holders)
        devices = fpga_devices(inventory, self._mode, units=self._units, previous=self._offered)
        self._offered = [each for each in devices if each.resource]
        return Found(devices, inventory.problems, inventory.cards)

    async def _read_cards(self) -> Inventory:
        before = self._calls.busy
        inventory = await self._scan()
        busy, stuck = before | self._calls.busy, self._calls.abandoned
        cards, last = [], {}
        for card in inventory.cards:
            known, key = (card.driver, card.name), card_key(lock_of(card))
            # While a card is programmed, its files change: ports vanish for a moment, ids can't be
            # read, and registers show errors that will be cleared. That says nothing about its
            # health, so it stays as the scan before found it until the work has ended.
            counts = self._last.get(known) if key in busy else card
            if counts is not None:
                last[known] = counts
            if counts is None or key in stuck:
                # None: the mode before has begun work that goes on, and may end in another function
                counts = replace(counts or card, failure=_hung(card, stuck.get(key, 0.0)))
            cards.append(counts)
        self._last = last
        inventory = replace(inventory, cards=tuple(cards))
        problems: dict[str, Problem] = {}
        for find in self._problems:
            problems |= find(inventory)
        return with_problems(inventory, problems, self._ignored_errors)


def _hung(card: Card, seconds: float) -> Problem:
    return Problem(
        HUNG_IN_DRIVER,
        f"card {card.name} hangs in its driver since {seconds:.0f} s, in a call that was given up;"
        " if it doesn't come back, reset the card or restart the node",
    )
