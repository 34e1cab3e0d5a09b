"""The registrations of all resources of a node, as resources come, change and go."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import structlog

from services.devices.model import Device
from services.node.counted import Counted
from services.node.registration import Registration

Devices = Mapping[str, Device]

log = structlog.get_logger(component="node")


class ResourceSet:
    """Starts, updates and ends registrations; `on_end` gets the resource of one that has ended.

    An internal error of a registration ends all of them.
    """

    def __init__(
        self,
        create_registration: Callable[[str, Devices], Registration],
        counted: Counted,
        *,
        on_end: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.registrations: dict[str, Registration] = {}
        self._create_registration = create_registration
        self._group = asyncio.TaskGroup()
        self._counted = counted
        self._on_end = on_end
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Of each registration, until it has ended."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Registrations run meanwhile; at the end their streams and sockets end."""
        async with asyncio.TaskGroup() as self._group:
            try:
                yield
            finally:
                for task in self._tasks.values():
                    task.cancel()

    def offer(self, resources: Mapping[str, Devices]) -> None:
        """Offer these resources; withdraw what the kubelet still counts of anything else."""
        for resource, devices in resources.items():
            self._offer(resource, devices)
        counted = self._counted.resources()
        for resource in sorted({*self.registrations, *counted} - resources.keys()):
            registration = self.registrations.get(resource)
            if registration is None or registration.devices:  # None: of another process or function
                log.warning("resource has no devices any more", resource=resource)
                self._offer(resource, {})
            elif resource not in counted:
                # Not before: the kubelet would keep the old capacity for minutes.
                self._end(resource)

    def resend(self) -> None:
        """Send the devices of one resource again, which makes the kubelet write its checkpoint."""
        for registration in self.registrations.values():
            server = registration.server
            if server is not None and server.opened.is_set() and not server.cut.is_set():
                server.resend()
                return

    def _offer(self, resource: str, devices: Devices) -> None:
        if resource in self.registrations:
            self.registrations[resource].update(devices)
            return
        registration = self._create_registration(resource, devices)
        self.registrations[resource] = registration
        run = _run(registration, after=self._tasks.get(resource))
        task = self._tasks[resource] = self._group.create_task(run, name=resource)
        task.add_done_callback(lambda task: self._forget(resource, task))

    def _end(self, resource: str) -> None:
        del self.registrations[resource]
        self._tasks[resource].cancel()
        self._on_end(resource)
        log.info("resource ended", resource=resource)

    def _forget(self, resource: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(resource) is task:
            del self._tasks[resource]


async def _run(registration: Registration, *, after: asyncio.Task[None] | None) -> None:
    if after is not None:
        # A stream that ends after the next registration would end that one in the kubelet.
        await asyncio.wait([after])
    await registration.keep_registered()
