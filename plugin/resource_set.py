"""The registrations of all resources of a node, as resources come, change and go.

A resource that loses its last device sends that at once, which makes its capacity 0; its
registration ends some time later. If it ended at once, the kubelet would keep the old capacity for
minutes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from plugin.registration import Registration
from services.devices.model import Device
from services.devices.resources import AdvertisedResources

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
        *,
        linger_seconds: float = LINGER_SECONDS,
        on_end: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.registrations: dict[str, Registration] = {}
        self._create_registration = create_registration
        self._group = group
        self._linger_seconds = linger_seconds
        self._on_end = on_end
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Of each registration, until it has ended."""
        self._lingering: dict[str, asyncio.TimerHandle] = {}

    def apply(self, advertised: AdvertisedResources) -> None:
        """Offer what the node has now."""
        for resource, devices in advertised.resources.items():
            if resource in self._lingering:
                self._lingering.pop(resource).cancel()
            if resource in self.registrations:
                self.registrations[resource].update(devices)
            else:
                self._start(resource, devices)
        gone = self.registrations.keys() - advertised.resources.keys() - self._lingering.keys()
        for resource in gone:
            log.warning("last device of a resource is gone", resource=resource)
            self.registrations[resource].update({})
            self._linger(resource)

    def resend(self) -> None:
        """Send the devices of one resource again, which makes the kubelet write its checkpoint."""
        for registration in self.registrations.values():
            if registration.server is not None:
                registration.server.resend()
                return

    def withdraw_stale(self, resources: Iterable[str]) -> None:
        """Withdraw what another process or mode offered and this one doesn't.

        The kubelet would count those devices for minutes, so they are registered once more without
        devices.
        """
        for resource in sorted(resources):
            if resource not in self.registrations:
                log.warning("a resource that was offered before has no devices", resource=resource)
                self._start(resource, {})
                self._linger(resource)
            self.registrations[resource].adopt()

    @property
    def has_unsent_withdrawals(self) -> bool:
        """Whether the kubelet still counts devices of a resource that has none any more."""
        return any(self.registrations[each].has_unsent_withdrawal for each in self._lingering)

    async def withdraw(self, seconds: float) -> frozenset[str]:
        """Withdraw all devices, and wait some seconds until the kubelet has been sent that.

        Returns:
            The resources of which the kubelet still counts devices after that time.
        """
        for registration in self.registrations.values():
            registration.update({})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(each.sent() for each in self.registrations.values()))
        return frozenset(
            name for name, each in self.registrations.items() if each.has_unsent_withdrawal
        )

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
