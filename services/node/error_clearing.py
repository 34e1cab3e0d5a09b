"""Clears the errors that containers left in ports, beside discovery.

`services.devices.stale_errors` decides what to clear.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import structlog

from services.containers.holders import Holders
from services.devices.model import Card, Inventory, Port
from services.devices.stale_errors import Tried, choose, untried
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.due import Due
from services.process.errors import AccelbindError, HardwareError
from services.process.outage import Outage
from services.programming.error_registers import ClearResult, clear_errors
from services.programming.ioctls import KERNEL, DriverCalls

WRITE_SECONDS: Final = 5.0

log = structlog.get_logger(component="node")


class ErrorClearing:
    """Clears errors of ports without a holder, each value once.

    `count` counts each outcome. `on_result` gets each port, and why its errors weren't cleared,
    empty if they were; of a port that stays busy once.
    """

    def __init__(
        self,
        root: Path,
        *,
        locks: Path,
        holders: Callable[[], Awaitable[Holders]],
        calls: BlockingCalls,
        count: Callable[[str], None],
        request_rescan: Callable[[], None],
        on_result: Callable[[str, str], None] = lambda _port, _error: None,
        driver_calls: DriverCalls = KERNEL,
    ) -> None:
        self._driver_calls = driver_calls
        self._root = root
        self._locks = locks
        self._holders = holders
        self._calls = calls
        self._count = count
        self._request_rescan = request_rescan
        self._on_result = on_result
        self._inventory = Inventory()
        self._due = Due()
        self._tried: Tried = frozenset()
        self._busy = Outage(
            log,
            "errors of ports are not cleared while these are in use",
            "no port with errors is in use",
        )
        self._told: Tried = frozenset()
        """The errors of ports that were busy at the last clearing, as `on_result` knows."""
        self._outage = Outage(
            log,
            "errors of ports are not cleared: the holders are unknown",
            "errors of ports are cleared again: the holders are known",
        )

    def on_scan(self, state: NodeState) -> None:
        """Clear soon if there are errors, or were some that are remembered."""
        self._inventory = inventory = state.inventory or Inventory()
        errors = any(port.errors for card in inventory.cards for port in card.ports)
        if errors or self._tried:
            self._due.request()

    async def clear_forever(self) -> NoReturn:
        """Clear whenever there is something to clear, until cancelled."""
        await self._due.run_forever(self.run_once)

    async def run_once(self) -> None:
        """Clear the stale errors of the newest inventory."""
        inventory = self._inventory
        try:
            holders = await self._holders()
        except AccelbindError as error:
            self._outage.failed(str(error))
            return
        self._outage.ended()
        chosen, self._tried = choose(inventory, holders, self._tried)
        busy: dict[tuple[str, str, int], str] = {}
        for card, port in chosen:
            outcome, detail = await self._clear(card, port)
            self._count(outcome)
            key = card.place, port.name, port.errors or 0
            if outcome is not ClearResult.BUSY or key not in self._told:
                self._on_result(port.name, detail)
            if outcome is ClearResult.BUSY:
                self._tried = untried(self._tried, card, port)
                busy[key] = detail
                continue
            if outcome is ClearResult.CLEARED:
                self._request_rescan()
            log.warning(
                "errors of a port cleared" if not detail else "errors of a port not cleared",
                port=port.name,
                errors=f"{port.errors or 0:#x}",
                reason=detail,
            )
        self._told = frozenset(busy)
        self._busy.update("; ".join(busy.values()))

    async def _clear(self, card: Card, port: Port) -> tuple[ClearResult, str]:
        """Try to clear; return the outcome, and why it failed."""
        try:
            # The write may hang in the card's driver.
            return await self._calls.run(
                f"errors of {port.name}",
                partial(clear_errors, self._root, card, port, self._locks, self._driver_calls),
                timeout=WRITE_SECONDS,
                what=f"clearing the errors of {port.name}",
            )
        except HardwareError as error:
            return ClearResult.HUNG, str(error)
