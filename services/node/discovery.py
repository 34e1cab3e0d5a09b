"""The loop of a node process: reads the node, and takes the ledger a step further."""

import time
from dataclasses import replace
from typing import NoReturn, Protocol

import structlog

from services.kube.events import EventRecorder
from services.node.events import Change, changes
from services.node.ledger import World, step
from services.node.state import NodeState
from services.process.outage import Outage

log = structlog.get_logger(component="node")


class ReadsWorld(Protocol):
    """Reads a node."""

    async def read(self, *, divides: bool) -> World:
        """Read the node once, as `WorldReader` does."""


class Discovery:
    """Reads the node every `interval` seconds, or on request.

    Each change between two ledgers is logged, and recorded as an Event of the node. After a reading
    that did not fail, the work of all who follow the state is due.
    """

    def __init__(
        self,
        state: NodeState,
        reader: ReadsWorld,
        events: EventRecorder,
        *,
        interval: float,
    ) -> None:
        self._state = state
        self._reader = reader
        self._events = events
        self._interval = interval
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
        state = self._state
        world = await self._reader.read(divides=state.divides)
        world = replace(world, attempts=state.attempts)
        before, state.attempts = state.ledger, {}
        state.ledger = step(before, world, time.monotonic())
        self._outage.update(world.error)
        for change in changes(before, state.ledger):
            report(change, self._events)
        if world.is_known:
            state.scanned.set()
            state.announce()


def report(change: Change, events: EventRecorder) -> None:
    """Log a change, and record its Event."""
    write_log = log.warning if change.warning else log.info
    write_log(change.what, subject=change.subject, message=change.message)
    if change.event:
        events.record_on_node(change.subject, change.event, change.message, warning=change.warning)
