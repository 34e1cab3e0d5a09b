"""The calls to plugins and the events on pods, in order, and a signal for those who wait."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simulator.kubelet.pods import ContainerSpec, PodSpec
from simulator.kubelet.states import Event

KEPT: Final = 10_000
"""How many calls and events are remembered, so that a long run stays flat."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call between the kubelet and a plugin, noted when it begins.

    Attributes:
        method: `Register`, `GetDevicePluginOptions`, `ListAndWatch`, `Registered` (the answer to
            `Register`), `Disconnected`, `GetPreferredAllocation`, `Allocate`, `PreStartContainer`.
        resource: whose.
        ids: the device ids in question; what is available for `GetPreferredAllocation`.
        must_include: of `GetPreferredAllocation`.
        size: of `GetPreferredAllocation`.
    """

    method: str
    resource: str
    ids: tuple[str, ...] = ()
    must_include: tuple[str, ...] = ()
    size: int = 0


class Journal:
    """The calls and events of one kubelet, the newest last."""

    def __init__(self) -> None:
        self.version = 0
        self.calls: deque[Call] = deque(maxlen=KEPT)
        self.events: deque[Event] = deque(maxlen=KEPT)
        self._waiting: set[asyncio.Future[None]] = set()

    def call(self, call: Call) -> None:
        """Add a call."""
        self.calls.append(call)
        self.ring()

    def event(
        self,
        kind: str,
        reason: str,
        message: str,
        pod: PodSpec,
        container: ContainerSpec | None = None,
    ) -> None:
        """Add an event; a repeated one is counted."""
        where = container.field_path if container else ""
        new = Event(kind, reason, message, pod, where)
        known = next((each for each in self.events if each.says_the_same_as(new)), None)
        if known is None:
            self.events.append(new)
        else:
            known.again()
        self.ring()

    def ring(self) -> None:
        """Wake everyone who waits: something changed."""
        self.version += 1
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds, checked after each change."""
        while not holds():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)
            try:
                await waiting
            finally:
                self._waiting.discard(waiting)
