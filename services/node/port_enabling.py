"""Enables ports that their driver keeps disabled, beside discovery, once nobody has their card.

A disabled port is unhealthy, so no container would get it, and none would have it programmed again.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn

import structlog

from services.containers.holders import Holders
from services.devices.health import PORT_DISABLED, PORT_WITHOUT_DRIVER
from services.devices.held import held_parts, port_resources
from services.devices.model import Card, Inventory
from services.devices.topology import Topology, card_key, lock_of
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.due import Due
from services.process.errors import AccelbindError, DeviceBusy

ENABLE_SECONDS: Final = 20.0
"""For a card, whose lock somebody else may hold for half of that."""

DISABLED: Final = frozenset({PORT_DISABLED, PORT_WITHOUT_DRIVER})

log = structlog.get_logger(component="node")


class PortEnabling:
    """Enables disabled ports without a holder, once each time that they are disabled.

    `enable` binds the driver of a port's card anew, if the port is still disabled.
    """

    def __init__(
        self,
        *,
        enable: Callable[[str], bool],
        holders: Callable[[], Awaitable[Holders]],
        calls: BlockingCalls,
        request_rescan: Callable[[], None],
    ) -> None:
        self._enable = enable
        self._holders = holders
        self._calls = calls
        self._request_rescan = request_rescan
        self._inventory = Inventory()
        self._tried: frozenset[str] = frozenset()
        """The places of cards that were tried, until their ports are enabled."""
        self._due = Due()

    def on_scan(self, state: NodeState) -> None:
        """Work soon if a port is disabled."""
        self._inventory = state.inventory or Inventory()
        disabled = {card.place for card in self._inventory.cards if _disabled_port(card)}
        self._tried &= disabled
        if disabled - self._tried:
            self._due.request()

    async def enable_forever(self) -> NoReturn:
        """Enable whenever there is a disabled port, until cancelled."""
        await self._due.run_forever(self.run_once)

    async def run_once(self) -> None:
        """Enable the disabled ports of the newest inventory."""
        inventory = self._inventory
        try:
            held, node = held_parts(await self._holders()), Topology(inventory.cards)
        except AccelbindError:
            return  # known again after a later scan
        for card in inventory.cards:
            port = _disabled_port(card)
            if not port or card.place in self._tried:
                continue
            if any(port_resources(held, node, card, each) != frozenset() for each in card.ports):
                continue
            await self._bind_anew(card, port)

    async def _bind_anew(self, card: Card, port: str) -> None:
        try:
            enabled = await self._calls.run(
                card_key(lock_of(card)),
                partial(self._enable, port),
                timeout=ENABLE_SECONDS,
                what=f"enabling {port}",
            )
        except DeviceBusy:
            return  # tried again after the next scan
        except AccelbindError as error:
            self._tried |= {card.place}
            log.warning("a disabled port stays disabled", port=port, reason=str(error))
            return
        self._tried |= {card.place}
        if enabled:
            log.warning("driver of a card bound anew", card=card.name, port=port)
        self._request_rescan()


def _disabled_port(card: Card) -> str:
    """The name of a disabled port of a card, empty if there is none."""
    for port in card.ports:
        if any(problem.reason in DISABLED for problem in port.problems):
            return port.name
    return ""
