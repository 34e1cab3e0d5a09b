"""Clearing the errors that containers left in ports, while discovery goes on.

`services.devices.stale_errors` decides; this asks whose the devices are, lets a thread of its own
write, and tells what came of it. A write may hang in the card's driver: then this waits no longer
than its deadline, and scans are not held up at all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from services.containers.holders import Holders
from services.devices.model import Inventory
from services.devices.stale_errors import Clearing, Tried, choose
from services.process.blocking import BlockingCalls
from services.process.errors import AccelbindError, HardwareError
from services.programming.error_registers import Cleared, ClearResult, clear_errors
from services.programming.ioctls import KERNEL, DriverCalls

WRITE_SECONDS: Final = 5.0

HUNG: Final = "hung"
"""The outcome of a write that takes longer than 5 s: it is given up."""

log = structlog.get_logger(room="plugin")


class ErrorClearing:
    """Clears errors of ports that nobody has, each value once.

    Args:
        root: Folder below which `sys/` and `dev/` are.
        locks: Where the locks of cards are.
        holders: Reads whose the devices are.
        calls: Makes the calls that may hang.
        counted: Told each outcome, for metrics: those of `ClearResult`, and `HUNG`.
        look_now: Asks for a scan, to see whether errors stay away.
        told: Told each port whose errors were to be cleared, and why they couldn't be if so.
        driver_calls: Makes the ioctls of the cards' drivers.
    """

    def __init__(
        self,
        root: Path,
        *,
        locks: Path,
        holders: Callable[[], Awaitable[Holders]],
        calls: BlockingCalls,
        counted: Callable[[str], None],
        look_now: Callable[[], None],
        told: Callable[[str, str], None] = lambda _port, _trouble: None,
        driver_calls: DriverCalls = KERNEL,
    ) -> None:
        self._driver_calls = driver_calls
        self._root = root
        self._locks = locks
        self._holders = holders
        self._calls = calls
        self._counted = counted
        self._look_now = look_now
        self._told = told
        self._inventory = Inventory()
        self._due = asyncio.Event()
        self._tried = Tried()
        self._trouble = ""
        self._busy: dict[str, int] = {}

    def take(self, inventory: Inventory) -> None:
        """Takes what a scan found; only errors, or a memory of some, are a reason to do anything.

        Args:
            inventory: What the scan found.
        """
        self._inventory = inventory
        errors = any(port.errors for card in inventory.cards for port in card.ports)
        if errors or self._tried.values:
            self._due.set()

    async def run(self) -> None:
        """Clears whenever something is due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.run_once()

    async def run_once(self) -> None:
        """Clears what is to be cleared of the newest inventory."""
        inventory = self._inventory
        try:
            holders = await self._holders()
        except AccelbindError as error:
            self._unknown(str(error))
            return
        self._trouble = ""
        allocated = {key for _, key in holders}
        clearings, self._tried = choose(inventory, allocated, self._tried)
        cleared = [await self._clear(clearing) for clearing in clearings]
        if ClearResult.CLEARED in cleared:
            self._look_now()

    async def _clear(self, clearing: Clearing) -> ClearResult | None:
        try:
            done: Cleared = await self._calls.run(
                f"errors of {clearing.port}",
                partial(clear_errors, self._root, clearing, self._locks, self._driver_calls),
                timeout=WRITE_SECONDS,
                what=f"clearing the errors of {clearing.port}",
            )
        except HardwareError as error:
            self._counted(HUNG)
            self._told(clearing.port, str(error))
            log.warning("errors of a port not cleared", port=clearing.port, reason=str(error))
            return None
        if done.outcome is ClearResult.BUSY:
            self._tried = self._tried.without(clearing.port, clearing.value)
            if self._busy.get(clearing.port) == clearing.value:
                return done.outcome  # counted and logged when it began
            self._busy[clearing.port] = clearing.value
        else:
            self._busy.pop(clearing.port, None)
        self._counted(done.outcome)
        self._told(clearing.port, "" if done.outcome is ClearResult.CLEARED else done.detail)
        bound = log.bind(port=clearing.port, errors=f"{clearing.value:#x}")
        if done.outcome is ClearResult.CLEARED:
            bound.warning("errors cleared that a container left in a port")
        else:
            bound.warning("errors of a port not cleared", reason=done.detail)
        return done.outcome

    def _unknown(self, trouble: str) -> None:
        say = log.debug if trouble == self._trouble else log.warning
        say("errors of ports are not cleared, since nobody can tell whose they are", reason=trouble)
        self._trouble = trouble
