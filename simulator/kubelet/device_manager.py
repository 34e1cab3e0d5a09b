"""The kubelet's device manager: chooses devices, asks plugins, keeps the checkpoint.

The rules, and the order of calls, are those of `kubernetes/kubernetes`,
pkg/kubelet/cm/devicemanager/manager.go, for the topology manager's default policy (`none`). Changes
are on disk before anything acts on them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import grpc.aio
import msgspec
import structlog

from services.kubelet import podresources_pb2 as pb
from services.kubelet.deviceplugin_pb2_grpc import add_RegistrationServicer_to_server
from services.kubelet.podresources_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)
from services.kubelet.sockets import checkpoint_file, pod_resources_socket, registration_socket
from services.process.errors import KubeletError
from services.process.files import replace_file
from simulator.kubelet.devices import (
    NO_NUMA,
    Checkpoint,
    CheckpointData,
    Device,
    Entry,
    Granted,
    ResourceTable,
    entry_of,
    granted,
)
from simulator.kubelet.pods import ContainerSpec, Journal, PodSpec
from simulator.kubelet.registration import (
    Faults,
    PluginClient,
    PluginFailed,
    Registration,
    delete_files,
    serve,
)

LOG = structlog.get_logger()

ListContext: TypeAlias = grpc.aio.ServicerContext[
    pb.ListPodResourcesRequest, pb.ListPodResourcesResponse
]
AllocatableContext: TypeAlias = grpc.aio.ServicerContext[
    pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse
]


class AllocationFailed(KubeletError):
    """A pod can't have what it requests, now or later."""


class StartRefused(KubeletError):
    """A container can't be started now."""


class DeviceManager:
    """Devices of one node, from registration to `PreStartContainer`.

    `active` returns the pods that may hold devices.
    """

    def __init__(
        self, folder: Path, *, active: Callable[[], Iterable[PodSpec]], journal: Journal
    ) -> None:
        self.faults = Faults()
        self.registered = ResourceTable()
        self.registration: Registration | None = None
        """None while the kubelet is stopped."""
        self._folder = folder
        self._active = active
        self._journal = journal
        self._entries: dict[tuple[str, str, str], Entry] = {}
        self._servers: list[grpc.aio.Server] = []

    # Life

    async def start(self) -> None:
        """Begin a life: restore the checkpoint, delete the files of earlier runs, serve."""
        own, other = registration_socket(self._folder), pod_resources_socket(self._folder)
        own.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        other.parent.mkdir(mode=0o750, exist_ok=True)
        self._restore()
        self.registration = Registration(
            own.parent, self.registered, self._journal, self.faults, self._changed
        )
        self._servers = [grpc.aio.server(), grpc.aio.server()]
        add_RegistrationServicer_to_server(self.registration, self._servers[0])
        service = PodResources(self)  # type: ignore[abstract]  # `Get` isn't served
        add_PodResourcesListerServicer_to_server(service, self._servers[1])
        # 1.36 deletes only sockets; older ones delete all these, which is harder on plugins.
        delete_files(own.parent, keep={own, checkpoint_file(self._folder)})
        await serve(self._servers[1], other)
        await serve(self._servers[0], own)
        LOG.info("kubelet starts", folder=str(self._folder))

    async def stop(self) -> None:
        """End a life; leave all files."""
        registration, self.registration = self.registration, None
        servers, self._servers = self._servers, []
        if registration is not None:
            await registration.close()
        for server in servers:
            await server.stop(None)

    def _restore(self) -> None:
        try:
            content = checkpoint_file(self._folder).read_bytes()
            data = msgspec.json.decode(content, type=Checkpoint).data
        except (FileNotFoundError, msgspec.DecodeError) as error:
            LOG.info("no checkpoint", reason=str(error))
            data = CheckpointData()
        self._entries = {(e.pod_uid, e.container, e.resource): e for e in data.entries or ()}
        self.registered.restore(data.registered)

    def _save(self) -> None:
        registered = {name: ids or None for name, ids in self.registered.healthy().items()}
        data = CheckpointData([*self._entries.values()] or None, registered)
        content = msgspec.json.encode(Checkpoint(data))
        replace_file(checkpoint_file(self._folder), content, mode=0o600)

    def _changed(self) -> None:
        """Save a change of a plugin, and wake waiters."""
        try:
            self._save()
        except OSError as error:
            LOG.warning("checkpoint not written", reason=str(error))
        self._journal.ring()

    # What there is

    @property
    def entries(self) -> list[Entry]:
        """The devices of active pods, in the order of allocation; forgets those of other pods."""
        kept = {pod.uid for pod in self._active()}
        self._entries = {key: each for key, each in self._entries.items() if key[0] in kept}
        return [*self._entries.values()]

    def in_use(self, resource: str) -> set[str]:
        return {each for entry in self.entries if entry.resource == resource for each in entry.ids}

    def _of_container(self, pod: PodSpec, container: ContainerSpec) -> list[Entry]:
        key = (pod.uid, container.name)
        return [each for each in self._entries.values() if (each.pod_uid, each.container) == key]

    def granted(self, pod: PodSpec, container: ContainerSpec) -> Granted:
        return granted(self._of_container(pod, container))

    def pod_resources(self) -> Iterator[pb.PodResources]:
        """All pods of the node, from before they are admitted until they end.

        As in the real kubelet, plain init containers are not listed.
        """
        _ = self.entries  # forgets pods that have ended, which changes no file
        for pod in self._active():
            containers = [
                pb.ContainerResources(
                    name=container.name,
                    devices=[
                        device
                        for entry in self._of_container(pod, container)
                        for device in _devices(entry)
                    ],
                )
                for container in pod.containers
                if not container.runs_to_completion
            ]
            yield pb.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    # Allocation

    async def allocate(self, pod: PodSpec) -> None:
        reusable: dict[str, set[str]] = {}
        for container in pod.containers:
            changed = False
            for resource, count in self._resources(container):
                if resource in container.claimed:
                    continue
                pool = reusable.get(resource, set())
                ids = await self._choose(pod, container, resource, count, pool)
                if ids:
                    await self._allocate(pod, container, resource, ids)
                    changed = True
            if changed:
                self._save()
            # What a plain init container got is offered again; the others keep what they take.
            for entry in self._of_container(pod, container):
                pool = reusable.setdefault(entry.resource, set())
                if container.runs_to_completion:
                    pool.update(entry.ids)
                else:
                    pool.difference_update(entry.ids)

    async def _allocate(
        self, pod: PodSpec, container: ContainerSpec, resource: str, ids: list[str]
    ) -> None:
        known = self.registered.known(resource)
        listed = (known.devices if known else None) or {}
        devices = [listed.get(each) or Device(each, healthy=True) for each in ids]
        try:
            response = await self._client(resource).allocate(ids)
        except PluginFailed as error:
            raise AllocationFailed(str(error)) from error
        if response is None:
            raise AllocationFailed("no containers return in allocation response")
        entry = entry_of(pod.uid, container.name, resource, devices, response)
        self._entries[pod.uid, container.name, resource] = entry

    async def _choose(
        self, pod: PodSpec, container: ContainerSpec, resource: str, required: int, pool: set[str]
    ) -> list[str]:
        """The ids to allocate; none where the container has them already."""
        known = self.registered.known(resource)
        healthy = known.healthy if known else set()
        entry = self._entries.get((pod.uid, container.name, resource))
        had = set(entry.ids) if entry else set()
        if not healthy or not had <= healthy:
            raise AllocationFailed(f"cannot allocate unhealthy devices {resource}")
        if len(had) == required:  # before a restart of the kubelet
            return []
        chosen = sorted(pool)[:required]
        missing = required - len(chosen)
        if not missing:
            return chosen
        available = healthy - self.in_use(resource)
        if len(available) < missing:
            raise AllocationFailed(
                f"requested number of devices unavailable for {resource}."
                f" Requested: {missing}, Available: {len(available)}"
            )
        preferred: Collection[str] = ()
        if known and known.options and known.options.get_preferred_allocation_available:
            offered = sorted(available.union(chosen))
            try:
                preferred = await self._client(resource).preferred(offered, chosen, required)
            except PluginFailed as error:
                raise AllocationFailed(
                    f"device plugin GetPreferredAllocation rpc failed with err: {error}"
                ) from error
        wanted = [each for each in dict.fromkeys(preferred) if each in available]
        rest = sorted(available.difference(wanted))  # which a real kubelet leaves to chance
        return chosen + (wanted + rest)[:missing]

    async def pre_start(self, pod: PodSpec, container: ContainerSpec) -> None:
        """Have plugins prepare a container that is about to start.

        As in the real kubelet, also for resources that a claim serves.
        """
        for resource, count in self._resources(container):
            known = self.registered.registered.get(resource)
            entry = self._entries.get((pod.uid, container.name, resource))
            # A plugin that has not registered again after a restart of the kubelet has announced
            # nothing: it is not called, and the container starts.
            if not count or (known and not (known.options and known.options.pre_start_required)):
                continue
            if known is None:
                raise StartRefused(
                    f"endpoint not found in cache for a registered resource: {resource}"
                )
            if entry is None:
                raise StartRefused(
                    f"no devices found allocated in local cache for pod {pod.uid}, container"
                    f" {container.name}, resource {resource}"
                )
            try:
                await self._client(resource).pre_start(entry.ids)
            except PluginFailed as error:
                raise StartRefused(
                    f"device plugin PreStartContainer rpc failed with err: {error}"
                ) from error

    def _client(self, resource: str) -> PluginClient:
        if self.registration is None:
            raise PluginFailed("the kubelet is stopped")
        return self.registration.client(resource)

    def _resources(self, container: ContainerSpec) -> list[tuple[str, int]]:
        """The device plugins' resources among a container's limits."""
        in_use = {entry.resource for entry in self._entries.values()}
        return [e for e in container.limits if self.registered.known(e[0]) or e[0] in in_use]


def _devices(entry: Entry) -> Iterator[pb.ContainerDevices]:
    # As in the real kubelet: one message per device and NUMA node.
    for device_id in entry.ids:
        nodes = [node for node, ids in entry.by_numa.items() if device_id in ids]
        for node in nodes:
            topology = None if node == NO_NUMA else pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])
            yield pb.ContainerDevices(
                resource_name=entry.resource, device_ids=[device_id], topology=topology
            )


class PodResources(PodResourcesListerServicer):
    def __init__(self, manager: DeviceManager) -> None:
        self._manager = manager

    async def List(  # noqa: N802 - the protocol's name
        self,
        request: pb.ListPodResourcesRequest,  # noqa: ARG002 - it has no fields
        context: ListContext,  # noqa: ARG002 - nothing can go wrong
    ) -> pb.ListPodResourcesResponse:
        return pb.ListPodResourcesResponse(pod_resources=self._manager.pod_resources())

    async def GetAllocatableResources(  # noqa: N802 - the protocol's name
        self,
        request: pb.AllocatableResourcesRequest,  # noqa: ARG002 - it has no fields
        context: AllocatableContext,  # noqa: ARG002 - nothing can go wrong
    ) -> pb.AllocatableResourcesResponse:
        healthy = self._manager.registered.healthy().items()
        devices = [pb.ContainerDevices(resource_name=name, device_ids=ids) for name, ids in healthy]
        return pb.AllocatableResourcesResponse(
            devices=[each for each in devices if each.device_ids]
        )
