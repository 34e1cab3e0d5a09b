"""Repairs ports, beside discovery; `services.node.repairs` decides which."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn

import structlog

from services.containers.holders import Holders
from services.devices.held import held_parts
from services.devices.model import Card, Port
from services.devices.topology import card_key, lock_of
from services.node.repairs import Repairs, clearing, enabling, repairs
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import AccelbindError, DeviceBusy, HardwareError
from services.process.outage import Outage
from services.programming.error_registers import ClearResult

WRITE_SECONDS: Final = 5.0
"""For clearing errors, which may hang in the card's driver."""

ENABLE_SECONDS: Final = 20.0
"""For a card, whose lock somebody else may hold for half of that."""

log = structlog.get_logger(component="node")


class Repairing:
    """Clears errors that containers left in ports, and enables ports that are disabled.

    Args:
        state: What is known of the node; the attempts are noted there.
        holders: Reads which containers have devices.
        calls: Make the calls.
        clear: Clears the errors of a port.
        enable: Binds the driver of a port's card anew, if the port is still disabled.
        count: Called with each outcome of a clearing.
        on_result: Called with a port and why its errors weren't cleared, empty if they were; of a
            port that stays busy once.
    """

    def __init__(
        self,
        state: NodeState,
        *,
        holders: Callable[[], Awaitable[Holders]],
        calls: BlockingCalls,
        clear: Callable[[Card, Port], tuple[ClearResult, str]],
        enable: Callable[[str], bool],
        count: Callable[[str], None],
        on_result: Callable[[str, str], None],
    ) -> None:
        self._state = state
        self._holders = holders
        self._calls = calls
        self._clear = clear
        self._enable = enable
        self._count = count
        self._on_result = on_result
        self._due = state.follow()
        self._busy = Outage(
            log,
            "errors of ports are not cleared while these are in use",
            "no port with errors is in use",
        )
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
            self._busy.ended()
            return
        try:
            todo = self._todo(await self._holders())
        except AccelbindError as error:
            self._outage.failed(str(error))
            return
        self._outage.ended()
        busy = [await self._clear_errors(*each) for each in todo.errors]
        self._busy.update("; ".join(filter(None, busy)))
        for card, port in todo.disabled:
            await self._bind_anew(card, port)

    def _todo(self, holders: Holders) -> Repairs:
        ledger = self._state.ledger
        cards = ledger.inventory.cards if ledger.inventory else ()
        found = repairs(cards, held_parts(holders), ledger.tried | self._state.attempts)
        rules = ledger.rules
        return Repairs(
            found.errors if rules.clears_errors else (),
            found.disabled if rules.enables_ports else (),
        )

    async def _clear_errors(self, card: Card, port: Port) -> str:
        """Try to clear the errors of a port; return why it is busy, if so."""
        try:
            outcome, detail = await self._calls.run(
                f"errors of {port.name}",
                partial(self._clear, card, port),
                timeout=WRITE_SECONDS,
                what=f"clearing the errors of {port.name}",
            )
        except HardwareError as error:
            outcome, detail = ClearResult.HUNG, str(error)
        self._count(outcome)
        if outcome is ClearResult.BUSY:
            if detail not in self._busy.reason:
                self._on_result(port.name, detail)
            return detail
        self._on_result(port.name, detail)
        self._state.attempts |= {clearing(card, port)}
        if outcome is ClearResult.CLEARED:
            self._state.rescan.request()
        log.warning(
            "errors of a port cleared" if not detail else "errors of a port not cleared",
            port=port.name,
            errors=f"{port.errors or 0:#x}",
            reason=detail,
        )
        return ""

    async def _bind_anew(self, card: Card, port: Port) -> None:
        try:
            enabled = await self._calls.run(
                card_key(lock_of(card)),
                partial(self._enable, port.name),
                timeout=ENABLE_SECONDS,
                what=f"enabling {port.name}",
            )
        except DeviceBusy:
            return  # tried again after the next scan
        except AccelbindError as error:
            self._state.attempts |= {enabling(card)}
            log.warning("a disabled port stays disabled", port=port.name, reason=str(error))
            return
        self._state.attempts |= {enabling(card)}
        if enabled:
            log.warning("driver of a card bound anew", card=card.name, port=port.name)
        self._state.rescan.request()
