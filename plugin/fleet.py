"""All of a node's resources: an endpoint each, kept in step with the tree.

A resource that loses its last device says so at once, which makes its capacity 0; only some time
later its endpoint ends. Ended at once, the kubelet would keep the old capacity for minutes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from plugin.endpoint import Endpoint
from services.devices.model import Device
from services.devices.resources import AdvertisedResources

LINGER_SECONDS: Final = 60.0
"""How long an endpoint without devices stays."""

MOST_LINGERING: Final = 16
"""Endpoints without devices at once: more of them end sooner. A card that gets one function after
the other would take memory and sockets for each."""

Devices = Mapping[str, Device]

log = structlog.get_logger(room="plugin")


class Fleet:
    """Starts, updates and ends endpoints as resources come, change and go.

    Args:
        make_endpoint: Makes the endpoint of a resource.
        group: Where their tasks run: one that fails by a mistake of ours ends the group.
        linger_seconds: How long an endpoint without devices stays.
        ended: Told each resource whose endpoint has ended.
    """

    def __init__(
        self,
        make_endpoint: Callable[[str, Devices], Endpoint],
        group: asyncio.TaskGroup,
        *,
        linger_seconds: float = LINGER_SECONDS,
        ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.endpoints: dict[str, Endpoint] = {}
        self._make_endpoint = make_endpoint
        self._group = group
        self._linger_seconds = linger_seconds
        self._ended = ended
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lingering: dict[str, asyncio.TimerHandle] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    def apply(self, tree: AdvertisedResources) -> None:
        """Brings every endpoint in step with a tree.

        Args:
            tree: What the node offers now.
        """
        for resource, devices in tree.resources.items():
            if resource in self._lingering:
                self._lingering.pop(resource).cancel()
            if resource in self.endpoints:
                self.endpoints[resource].update(devices)
            else:
                self._begin(resource, devices)
        for resource in self.endpoints.keys() - tree.resources.keys() - self._lingering.keys():
            log.warning("last device of a resource is gone", resource=resource)
            self.endpoints[resource].update({})
            self._linger(resource)

    def retire(self, resources: Iterable[str]) -> None:
        """Ends what a predecessor offered and the node doesn't any more.

        The kubelet would count those devices for minutes, as ones that nobody serves. It is told
        that there are none, and then there is nothing to stay for.

        Args:
            resources: What was offered, and may be served now.
        """
        inherited = set(resources)
        for resource in inherited & self.endpoints.keys():
            self.endpoints[resource].inherit()
        for resource in sorted(inherited - self.endpoints.keys()):
            log.warning("a resource of a predecessor has no devices any more", resource=resource)
            self._begin(resource, {})
            self.endpoints[resource].inherit()
            self._linger(resource)
            retiring = self._group.create_task(self._end_once_told(resource), name="retiring")
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)

    @property
    def owes(self) -> bool:
        """Whether the kubelet hasn't been told yet of a resource that has no devices any more."""
        return any(self.endpoints[resource].owes for resource in self._lingering)

    async def withdraw(self, seconds: float) -> frozenset[str]:
        """Tells the kubelet that no resource has a device left, and waits until it was told.

        Args:
            seconds: How long to wait.

        Returns:
            What it couldn't be told of in that time, and so counts on.
        """
        for endpoint in self.endpoints.values():
            endpoint.update({})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(endpoint.told() for endpoint in self.endpoints.values()))
        return frozenset(name for name, endpoint in self.endpoints.items() if endpoint.owes)

    async def close(self) -> None:
        """Ends all endpoints with their streams and sockets."""
        for handle in self._lingering.values():
            handle.cancel()
        self._lingering.clear()
        tasks = [*self._tasks.values(), *self._retiring]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, resource: str, devices: Devices) -> None:
        endpoint = self._make_endpoint(resource, devices)
        self.endpoints[resource] = endpoint
        run = _run(endpoint, after=self._ending.get(resource))
        self._tasks[resource] = self._group.create_task(run, name=resource)

    def _linger(self, resource: str) -> None:
        self._lingering[resource] = asyncio.get_running_loop().call_later(
            self._linger_seconds, self._end, resource
        )
        known = [each for each in self._lingering if not self.endpoints[each].owes]
        for each in known[: max(0, len(self._lingering) - MOST_LINGERING)]:
            self._end(each)

    async def _end_once_told(self, resource: str) -> None:
        endpoint = self.endpoints[resource]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._linger_seconds):
                await endpoint.told()
                if resource in self._lingering and self.endpoints.get(resource) is endpoint:
                    self._end(resource)

    def _end(self, resource: str) -> None:
        self._lingering.pop(resource).cancel()
        self.endpoints.pop(resource)
        ending = self._ending[resource] = self._tasks.pop(resource)
        ending.add_done_callback(lambda task: self._forget(resource, task))
        ending.cancel()
        self._ended(resource)
        log.info("resource ended", resource=resource)

    def _forget(self, resource: str, ending: asyncio.Task[None]) -> None:
        if self._ending.get(resource) is ending:
            del self._ending[resource]


async def _run(endpoint: Endpoint, *, after: asyncio.Task[None] | None) -> None:
    """Runs an endpoint, once the one that had its resource has ended.

    A stream that ends after the next registration would end that one's in the kubelet.
    """
    if after is not None:
        await asyncio.wait([after])
    await endpoint.run()
