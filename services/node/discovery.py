"""The loop of a node process: reads the node, and takes the ledger a step further."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NoReturn

import structlog

from services.node.events import Change, changes
from services.node.ledger import step
from services.node.state import NodeState
from services.node.world import World
from services.process.outage import Outage

log = structlog.get_logger(component="node")


class Discovery:
    """Reads the node every `interval` seconds, or on request, by `read_world`.

    After each reading that did not fail, `on_change` gets each change, and the work of all who
    follow the state is due.
    """

    def __init__(
        self,
        state: NodeState,
        read_world: Callable[[], Awaitable[World]],
        *,
        interval: float,
        on_change: Callable[[Change], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._read_world = read_world
        self._interval = interval
        self._on_change = on_change
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
        """Scan once, and take the ledger a step further."""
        world, state = await self._read_world(), self._state
        world = replace(world, attempts=state.attempts)
        before, state.attempts = state.ledger, frozenset()
        state.ledger = step(before, world, time.monotonic())
        self._outage.update(world.error)
        if not world.is_known:
            return
        state.scanned.set()
        for change in changes(before, state.ledger):
            self._on_change(change)
        state.announce()
