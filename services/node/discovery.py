"""Looking at the cards again and again, and telling who needs to know.

`run_once` is one look: scan, build the tree, damp what flaps, report, apply. The loop around it
goes on whatever a look comes to: a scan that hangs is given up and said once, and what was known
goes on being offered until it is known better.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from services.devices.damping import Damping, Health, damp
from services.devices.model import Inventory, PluginMode
from services.devices.resources import (
    AdvertisedResources,
    OfferMemory,
    advertise,
    nothing_advertised,
)
from services.node.report import report_inventory, report_tree
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError

SCAN_SECONDS: Final = 15.0
"""For one scan; a thousand ports take a fifth of a second, and 64 cards that hang about six."""

log = structlog.get_logger(room="plugin")


class Discovery:
    """What this node has, as of the last look.

    Args:
        mode: The node's mode.
        root: Folder below which `sys/` and `dev/` are.
        units: How many units there are in mode `units`.
        interval: Seconds between two looks.
        damping: What it takes for a device to be trusted again.
        scan: Reads the cards below the root; called in a thread of its own.
        calls: Makes the calls that may hang.
        apply: Told each tree.
        scanned: Told the seconds of each scan.
    """

    def __init__(
        self,
        *,
        mode: PluginMode,
        root: Path,
        units: int,
        interval: float,
        damping: Damping,
        scan: Callable[[], Inventory],
        calls: BlockingCalls,
        apply: Callable[[AdvertisedResources], None],
        scanned: Callable[[float], None],
    ) -> None:
        self.tree = nothing_advertised(mode)
        self.inventory: Inventory | None = None
        """What the last scan found; None before the first."""
        self.trouble = ""
        """Why the last look came to nothing; empty if it didn't."""
        self._mode = mode
        self._root = root
        self._units = units
        self._interval = interval
        self._damping = damping
        self._health = Health()
        self._scan = scan
        self._calls = calls
        self._apply = apply
        self._scanned = scanned
        self._wake = asyncio.Event()
        self._built: tuple[tuple[Inventory, OfferMemory], AdvertisedResources] | None = None
        """The last tree and what it was built from: most looks see what the last one saw."""

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self.run_once()
            except HardwareError as error:
                self._failed(str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._wake.wait()

    def recall(self, memory: OfferMemory) -> None:
        """Takes what was offered before the first look: by a predecessor, or in another mode."""
        self.tree = replace(self.tree, memory=memory.for_mode(self._mode))

    def look_now(self) -> None:
        """Asks for a look before the interval is over; a burst is one look."""
        self._wake.set()

    async def run_once(self) -> None:
        """One look.

        Raises:
            HardwareError: The scan hangs.
        """
        inventory, tree = await self._calls.run(
            "scan",
            self._look,
            timeout=SCAN_SECONDS,
            what=f"the scan of the cards below {self._root}",
        )
        if self.trouble:
            log.info("scans answer again")
        self.trouble = ""
        tree, self._health = damp(tree, self._health, self._damping, now=time.monotonic())
        report_inventory(self.inventory, inventory)
        if tree is not self.tree:
            report_tree(self.tree, tree)
        self.inventory, self.tree = inventory, tree
        self._apply(tree)

    def _look(self) -> tuple[Inventory, AdvertisedResources]:
        """In a thread of its own; what it uses of us doesn't change meanwhile."""
        inventory = self._inventory()
        given = inventory, self.tree.memory
        if self._built is not None and self._built[0] == given:
            tree = self._built[1]
        else:
            tree = advertise(inventory, self._mode, units=self._units, previous=self.tree.memory)
        self._built = given, tree  # what is the same object compares fast the next time
        return inventory, tree

    def _inventory(self) -> Inventory:
        if self._mode is PluginMode.UNITS:
            return Inventory()
        began = time.perf_counter()
        inventory = self._scan()
        self._scanned(time.perf_counter() - began)
        return inventory

    def _failed(self, trouble: str) -> None:
        say = log.debug if trouble == self.trouble else log.error
        say("scan failed, what was known is offered on", reason=trouble)
        self.trouble = trouble
