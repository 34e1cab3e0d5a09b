"""Repairs ports, beside discovery; `services.node.repairs` decides which."""

from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import structlog
from prometheus_client import Counter

from services.containers.holders import HolderReader, Holders
from services.devices.held import held_parts
from services.devices.model import Card, Port
from services.devices.topology import card_key, lock_of
from services.node.repairs import Attempt, Repairs, Tried, clearing, enabling, repairs
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import AccelbindError, DeviceBusy, HardwareError
from services.process.outage import Outage
from services.programming.error_registers import ClearResult, clear_errors
from services.programming.ioctls import DriverCalls
from services.programming.programmer import Programmer

WRITE_SECONDS: Final = 5.0
"""For clearing errors, which may hang in the card's driver."""

ENABLE_SECONDS: Final = 20.0
"""For a card, whose lock somebody else may hold for half of that."""

log = structlog.get_logger(component="node")


class Repairing:
    """Clears errors that containers left in ports, and enables ports that are disabled.

    Args:
        state: What is known of the node; the attempts are noted there.
        holders: Which containers have devices.
        calls: Make the calls.
        root: The host's root.
        locks: The folder of the cards' locks.
        driver_calls: Open ports.
        programmer: Binds the driver of a port's card anew, if the port is still disabled.
        cleared: Counts the outcomes of clearings.
    """

    def __init__(
        self,
        state: NodeState,
        *,
        holders: HolderReader,
        calls: BlockingCalls,
        root: Path,
        locks: Path,
        driver_calls: DriverCalls,
        programmer: Programmer,
        cleared: Counter,
    ) -> None:
        self._state = state
        self._holders = holders
        self._calls = calls
        self._root = root
        self._locks = locks
        self._driver_calls = driver_calls
        self._programmer = programmer
        self._cleared = cleared
        self._due = state.follow()
        self._outage = Outage(
            log,
            "ports are not repaired: the holders are unknown",
            "ports are repaired again: the holders are known",
        )

    async def repair_forever(self) -> NoReturn:
        """Repair after each step of the ledger, until cancelled."""
        await self._due.run_forever(self.run_once)

    async def run_once(self) -> None:
        """Repair each port that can be repaired now."""
        if self._todo({}) == Repairs():
            return
        try:
            todo = self._todo(await self._holders.read())
        except AccelbindError as error:
            self._outage.failed(str(error))
            return
        self._outage.ended()
        for card, port in todo.errors:
            await self._clear(card, port)
        for card, port in todo.disabled:
            await self._bind_anew(card, port)

    def _todo(self, holders: Holders) -> Repairs:
        ledger = self._state.ledger
        cards = ledger.inventory.cards if ledger.inventory else ()
        tried = {**ledger.tried, **self._state.attempts}
        found = repairs(cards, held_parts(holders), tried)
        rules = ledger.rules
        return Repairs(
            found.errors if rules.clears_errors else (),
            found.disabled if rules.enables_ports else (),
        )

    def _note(self, attempt: Attempt, outcome: Tried) -> None:
        self._state.attempts = {**self._state.attempts, attempt: outcome}

    async def _clear(self, card: Card, port: Port) -> None:
        """Try to clear the errors of a port."""
        try:
            outcome, detail = await self._calls.run(
                f"errors of {port.name}",
                partial(clear_errors, self._root, card, port, self._locks, self._driver_calls),
                timeout=WRITE_SECONDS,
                what=f"clearing the errors of {port.name}",
            )
        except HardwareError as error:
            outcome, detail = ClearResult.HUNG, str(error)
        self._cleared.labels(outcome).inc()
        is_cleared, is_busy = outcome is ClearResult.CLEARED, outcome is ClearResult.BUSY
        self._note(clearing(card, port), Tried(port.name, is_cleared, detail, is_busy))
        if is_cleared:
            self._state.rescan.request()

    async def _bind_anew(self, card: Card, port: Port) -> None:
        done, reason = False, ""
        try:
            done = await self._calls.run(
                card_key(lock_of(card)),
                partial(self._programmer.enable, port.name),
                timeout=ENABLE_SECONDS,
                what=f"enabling {port.name}",
            )
        except DeviceBusy:
            return  # tried again after the next scan
        except AccelbindError as error:
            reason = str(error)
        self._note(enabling(card), Tried(port.name, done, reason))
        if not reason:
            self._state.rescan.request()
