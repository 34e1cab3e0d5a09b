"""The registrations of all resources of a node, as resources come, change and go."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from plugin.counted import CountedResources
from plugin.registration import Registration
from services.devices.model import Device
from services.node.state import NodeState

LINGER_SECONDS: Final = 60.0
"""How long a registration without devices stays."""

Devices = Mapping[str, Device]

log = structlog.get_logger(component="plugin")


class ResourceSet:
    """Starts, updates and ends registrations as resources come, change and go.

    `on_end` gets each resource whose registration has ended. An internal error of a registration
    ends the group.
    """

    def __init__(
        self,
        create_registration: Callable[[str, Devices], Registration],
        group: asyncio.TaskGroup,
        counted: CountedResources,
        *,
        linger_seconds: float = LINGER_SECONDS,
        on_end: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.registrations: dict[str, Registration] = {}
        self._create_registration = create_registration
        self._group = group
        self._counted = counted
        self._linger_seconds = linger_seconds
        self._on_end = on_end
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Of each registration, until it has ended."""
        self._lingering: dict[str, asyncio.TimerHandle] = {}

    def on_scan(self, state: NodeState) -> None:
        """Offer what the node has now; withdraw what the kubelet still counts of anything else."""
        resources = state.advertised.resources
        for resource, devices in resources.items():
            if resource in self._lingering:
                self._lingering.pop(resource).cancel()
            if resource in self.registrations:
                self.registrations[resource].update(devices)
            else:
                self._start(resource, devices)
        counted = self._counted.resources()
        gone = {*self.registrations, *counted} - resources.keys() - self._lingering.keys()
        for resource in sorted(gone):
            log.warning("last device of a resource is gone", resource=resource)
            if resource in self.registrations:
                self.registrations[resource].update({})
            else:
                self._start(resource, {})  # another mode offered it
            # If it ended at once, the kubelet would keep the old capacity for minutes.
            self._linger(resource)

    def resend(self) -> None:
        """Send the devices of one resource again, which makes the kubelet write its checkpoint."""
        for registration in self.registrations.values():
            server = registration.server
            if server is not None and server.opened.is_set() and not server.cut.is_set():
                server.resend()
                return

    async def withdraw(self, seconds: float) -> None:
        """Withdraw all devices, and wait some seconds until the kubelet counts none of them."""
        for registration in self.registrations.values():
            registration.update({})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._counted.until_none()

    async def close(self) -> None:
        """End all registrations with their streams and sockets."""
        for handle in self._lingering.values():
            handle.cancel()
        self._lingering.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, resource: str, devices: Devices) -> None:
        registration = self._create_registration(resource, devices)
        self.registrations[resource] = registration
        run = _run(registration, after=self._tasks.get(resource))
        task = self._tasks[resource] = self._group.create_task(run, name=resource)
        task.add_done_callback(lambda task: self._forget(resource, task))

    def _linger(self, resource: str) -> None:
        self._lingering[resource] = asyncio.get_running_loop().call_later(
            self._linger_seconds, self._end, resource
        )

    def _end(self, resource: str) -> None:
        del self._lingering[resource], self.registrations[resource]
        self._tasks[resource].cancel()
        self._on_end(resource)
        log.info("resource ended", resource=resource)

    def _forget(self, resource: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(resource) is task:
            del self._tasks[resource]


async def _run(registration: Registration, *, after: asyncio.Task[None] | None) -> None:
    """Keep a registration, once the one that had its resource before has ended.

    A stream that ends after the next registration would end that one in the kubelet.
    """
    if after is not None:
        await asyncio.wait([after])
    await registration.keep_registered()
