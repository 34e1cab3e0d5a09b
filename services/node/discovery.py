"""The discovery loop: reads the cards again and again, and keeps `NodeState` up to date.

`run_once` is one round: scan, decide what to advertise, damp devices that flap, log what changed.
`rounds` repeats it, whatever a round comes to: a scan that hangs is given up and logged once, and
what was known before stays advertised.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from services.devices.damping import Damping, Health, damp
from services.devices.model import Inventory, PluginMode
from services.devices.resources import AdvertisedResources, OfferMemory, advertise
from services.node.change_log import log_advertised_changes, log_inventory_changes
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError

SCAN_SECONDS: Final = 15.0
"""For one scan; a thousand ports take a fifth of a second, and 64 cards that hang about six."""

log = structlog.get_logger(room="plugin")


class Discovery:
    """Finds out what this node has in one mode.

    Args:
        state: Where the result is kept.
        mode: The node's mode.
        root: Folder below which `sys/` and `dev/` are.
        units: How many units there are in mode `units`.
        interval: Seconds between two scans.
        damping: How many good scans make a device healthy again.
        scan: Reads the cards below the root; called in a thread of its own.
        calls: Makes the calls that may hang.
        observe_seconds: Called with the seconds of each scan.
    """

    def __init__(
        self,
        state: NodeState,
        *,
        mode: PluginMode,
        root: Path,
        units: int,
        interval: float,
        damping: Damping,
        scan: Callable[[], Inventory],
        calls: BlockingCalls,
        observe_seconds: Callable[[float], None],
    ) -> None:
        self._state = state
        self._mode = mode
        self._root = root
        self._units = units
        self._interval = interval
        self._damping = damping
        self._health = Health()
        self._scan = scan
        self._calls = calls
        self._observe_seconds = observe_seconds
        self._built: tuple[tuple[Inventory, OfferMemory], AdvertisedResources] | None = None
        """The last resources and what they were made from: most scans find no change."""

    async def rounds(self) -> AsyncIterator[NodeState]:
        """Scans until cancelled; returns the state after each scan that didn't fail."""
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
        """Continues from what was offered before: by another process, or in another mode."""
        self._state.advertised = replace(self._state.advertised, memory=memory.for_mode(self._mode))

    async def run_once(self) -> None:
        """Scans once and updates the state.

        Raises:
            HardwareError: The scan hangs.
        """
        state = self._state
        inventory, advertised = await self._calls.run(
            "scan",
            self._read,
            timeout=SCAN_SECONDS,
            what=f"the scan of the cards below {self._root}",
        )
        if state.scan_error:
            log.info("scans answer again")
        state.scan_error = ""
        advertised, self._health = damp(
            advertised, self._health, self._damping, now=time.monotonic()
        )
        log_inventory_changes(state.inventory, inventory)
        if advertised is not state.advertised:
            log_advertised_changes(state.advertised, advertised)
        state.inventory, state.advertised = inventory, advertised

    def _read(self) -> tuple[Inventory, AdvertisedResources]:
        """In a thread of its own; the state that it reads doesn't change meanwhile."""
        inventory, memory = self._inventory(), self._state.advertised.memory
        source = inventory, memory
        if self._built is not None and self._built[0] == source:
            advertised = self._built[1]
        else:
            advertised = advertise(inventory, self._mode, units=self._units, previous=memory)
        self._built = source, advertised  # the same object compares fast the next time
        return inventory, advertised

    def _inventory(self) -> Inventory:
        if self._mode is PluginMode.UNITS:
            return Inventory()
        started = time.perf_counter()
        inventory = self._scan()
        self._observe_seconds(time.perf_counter() - started)
        return inventory

    def _log_failure(self, error: str) -> None:
        write = log.debug if error == self._state.scan_error else log.error
        write("scan failed, the last known devices stay offered", reason=error)
        self._state.scan_error = error
