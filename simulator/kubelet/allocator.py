"""How a kubelet chooses devices for a pod, and what it asks of the plugins.

The rules, and the order of calls, are those of `kubernetes/kubernetes`,
pkg/kubelet/cm/devicemanager/manager.go, for the topology manager's default policy (`none`):

- init containers first, then app containers; one resource of one container at a time;
- what a plain init container got is offered again: the next containers take it first, and a plugin
  that is asked for a preference must include it; sidecars and app containers keep what they take;
- a container that already has its devices (the kubelet restarted) is not allocated again;
- resources that no plugin ever listed are not the device manager's: they are passed over.
"""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from services.kubelet.deviceplugin_pb2 import ContainerAllocateResponse
from services.process.errors import KubeletError
from simulator.kubelet.ledger import Entry, Ledger, entry_of, granted
from simulator.kubelet.pods import ContainerSpec, PodSpec
from simulator.kubelet.registry import Device, Registry
from simulator.kubelet.states import Granted

T = TypeVar("T")


class Plugins(Protocol):
    """The plugins of a node, and where allocations are kept; calls raise PluginFailed."""

    async def query_preferred(
        self, resource: str, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Collection[str]:
        """GetPreferredAllocation: which of the available devices the plugin prefers."""

    async def query_allocate(
        self, resource: str, ids: Sequence[str]
    ) -> ContainerAllocateResponse | None:
        """Allocate with one container request: its response, if there is one."""

    def save(self) -> None:
        """Write the checkpoint."""


@dataclass(frozen=True, slots=True)
class PreStart:
    """A `PreStartContainer` to be made before a container starts."""

    resource: str
    ids: tuple[str, ...]


class PluginFailed(KubeletError):
    """A plugin could not be asked, or answered with an error; its text is Go's for the error."""


class AllocationFailed(KubeletError):
    """A pod can't have what it asks for, now or later."""


class StartRefused(KubeletError):
    """A container can't be started now."""


class Allocator:
    """The device manager's decisions for one node."""

    def __init__(
        self,
        registry: Registry,
        active: Callable[[], Iterable[str]],
        plugins: Plugins,
        rng: random.Random | None = None,
    ) -> None:
        """Starts without allocations.

        Args:
            registry: the resources.
            active: gives the UIDs of the pods that may hold devices.
            plugins: are asked.
            rng: where the real kubelet's order is left to chance (resources of a container,
                devices without a preference), this decides; without it, order is by spec and name.
        """
        self.ledger = Ledger()
        self._registry = registry
        self._active = active
        self._plugins = plugins
        self._rng = rng

    def restore(self, entries: Iterable[Entry]) -> None:
        """Start again with the entries of a checkpoint."""
        self.ledger = Ledger(entries)

    def forget_inactive(self) -> None:
        """Frees the devices of pods that came to their end or are gone."""
        self.ledger.keep_only(self._active())

    async def allocate(self, pod: PodSpec) -> None:
        """Allocates for all containers of a pod."""
        reusable: dict[str, set[str]] = {}
        for container in pod.all_containers:
            await self._allocate_container(pod, container, reusable)
            for entry in self.ledger.of_container(pod.uid, container.name):
                pool = reusable.setdefault(entry.resource, set())
                if container.runs_to_completion:
                    pool.update(entry.ids)
                else:
                    pool.difference_update(entry.ids)

    async def _allocate_container(
        self, pod: PodSpec, container: ContainerSpec, reusable: dict[str, set[str]]
    ) -> None:
        self.forget_inactive()
        changed = False
        for resource, count in self._resources(container):
            pool = reusable.get(resource, set())
            ids = await self._choose(pod, container, resource, count, pool)
            if ids:
                await self._allocate_resource(pod, container, resource, ids)
                changed = True
        if changed:
            self._save()

    async def _allocate_resource(
        self, pod: PodSpec, container: ContainerSpec, resource: str, ids: list[str]
    ) -> None:
        endpoint = self._registry.endpoint(resource)
        if endpoint is None:
            raise AllocationFailed(f"unknown Device Plugin {resource}")
        if endpoint.stopped:
            raise AllocationFailed(stopped_text(resource))
        devices = [
            self._registry.device(resource, each) or Device(each, healthy=True) for each in ids
        ]
        try:
            response = await self._plugins.query_allocate(resource, ids)
        except PluginFailed as error:
            raise AllocationFailed(str(error)) from error
        if response is None:
            raise AllocationFailed("no containers return in allocation response")
        self.ledger.add(entry_of(pod.uid, container.name, resource, devices, response))

    async def _choose(
        self, pod: PodSpec, container: ContainerSpec, resource: str, required: int, pool: set[str]
    ) -> list[str]:
        """The ids to allocate; none where the container has them already."""
        if self._has_already(pod, container, resource, required):
            return []
        chosen = self._order(pool)[:required]
        missing = required - len(chosen)
        if not missing:
            return chosen
        available = self._registry.healthy(resource) - self.ledger.in_use(resource)
        if len(available) < missing:
            raise AllocationFailed(
                f"requested number of devices unavailable for {resource}."
                f" Requested: {missing}, Available: {len(available)}"
            )
        preferred = await self._preferred(resource, available, chosen, required)
        wanted = [each for each in preferred if each in available]
        rest = self._order(available.difference(wanted))
        return chosen + (wanted + rest)[:missing]

    def _save(self) -> None:
        try:
            self._plugins.save()
        except OSError as error:
            raise AllocationFailed(f"failed to write checkpoint file: {error}") from error

    def _has_already(
        self, pod: PodSpec, container: ContainerSpec, resource: str, required: int
    ) -> bool:
        entry = self.ledger.entry(pod.uid, container.name, resource)
        had = set(entry.ids) if entry else set()
        if entry and len(had) != required:
            raise AllocationFailed(
                f'pod "{pod.uid}" container "{container.name}" changed request for resource'
                f' "{resource}" from {len(had)} to {required}'
            )
        healthy = self._registry.healthy(resource)
        if not self._registry.knows(resource):
            raise AllocationFailed(f"cannot allocate unregistered device {resource}")
        if not healthy:
            raise AllocationFailed(
                f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        if not had <= healthy:
            raise AllocationFailed(
                "previously allocated devices are no longer healthy;"
                f" cannot allocate unhealthy devices {resource}"
            )
        return len(had) == required

    async def _preferred(
        self, resource: str, available: set[str], chosen: list[str], required: int
    ) -> Collection[str]:
        endpoint = self._registry.endpoint(resource)
        if endpoint is None or endpoint.options is None or not endpoint.options.preferred:
            return []
        offered = self._order(available.union(chosen))
        try:
            return dict.fromkeys(
                await self._plugins.query_preferred(resource, offered, chosen, required)
            )
        except PluginFailed as error:
            raise AllocationFailed(
                f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            ) from error

    def before_start(self, pod: PodSpec, container: ContainerSpec) -> list[PreStart]:
        """The calls to make before a container starts, one per resource.

        After a restart of the kubelet, a plugin that has not registered again has announced
        nothing: nobody is asked then, and the container starts.
        """
        calls = []
        for resource, count in self._resources(container):
            endpoint = self._registry.endpoint(resource)
            if not count:
                continue
            if endpoint is None:
                raise StartRefused(
                    f"endpoint not found in cache for a registered resource: {resource}"
                )
            if endpoint.options is None or not endpoint.options.pre_start:
                continue
            entry = self.ledger.entry(pod.uid, container.name, resource)
            if entry is None:
                raise StartRefused(
                    "no devices found allocated in local cache for pod"
                    f" {pod.uid}, container {container.name}, resource {resource}"
                )
            if endpoint.stopped:
                raise StartRefused(pre_start_text(stopped_text(resource)))
            calls.append(PreStart(resource, entry.ids))
        return calls

    def granted(self, pod: PodSpec, container: ContainerSpec) -> Granted:
        """What a container starts with."""
        return granted(self._order_by_chance(self.ledger.of_container(pod.uid, container.name)))

    def _resources(self, container: ContainerSpec) -> list[tuple[str, int]]:
        """The device plugins' resources among a container's limits."""
        mine = [each for each in container.limits if self._is_device_resource(each[0])]
        return self._order_by_chance(mine)

    def _is_device_resource(self, resource: str) -> bool:
        return self._registry.knows(resource) or self.ledger.has_resource(resource)

    def _order(self, ids: Iterable[str]) -> list[str]:
        return self._order_by_chance(sorted(ids))

    def _order_by_chance(self, items: Iterable[T]) -> list[T]:
        ordered = list(items)
        if self._rng is not None:
            self._rng.shuffle(ordered)
        return ordered


def stopped_text(resource: str) -> str:
    """The error of a call to a plugin that is gone."""
    return f"endpoint {resource} has been stopped"


def pre_start_text(error: str) -> str:
    """How a failed `PreStartContainer` reads in a container's status."""
    return f"device plugin PreStartContainer rpc failed with err: {error}"
