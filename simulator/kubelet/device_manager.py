"""The kubelet's device manager: its tables, its checkpoint and its two sockets.

A life begins with `start` (the checkpoint is read, all sockets in the folder are deleted, its own
are made) and ends with `stop` (plugins are dropped, every socket file stays). Changes are on disk
before anything acts on them.
"""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import grpc.aio
import structlog

from services.kubelet.deviceplugin_pb2 import ContainerAllocateResponse
from services.kubelet.deviceplugin_pb2_grpc import add_RegistrationServicer_to_server
from services.kubelet.podresources_pb2_grpc import add_PodResourcesListerServicer_to_server
from services.kubelet.sockets import (
    checkpoint_file,
    plugins_folder,
    pod_resources_socket,
    registration_socket,
)
from services.process.files import replace_file
from simulator.kubelet.allocator import Allocator, PluginFailed, PreStart
from simulator.kubelet.files import delete_stale, publish, serving
from simulator.kubelet.journal import Call, Journal
from simulator.kubelet.ledger import CorruptCheckpoint, decode_checkpoint, encode_checkpoint
from simulator.kubelet.podresources import PodResources
from simulator.kubelet.pods import PodSpec
from simulator.kubelet.registration import Faults, Registration
from simulator.kubelet.registry import NodeResources, Registry

LOG = structlog.get_logger()


class DeviceManager:
    """Devices of one node, from registration to `PreStartContainer`."""

    def __init__(
        self,
        folder: Path,
        *,
        active: Callable[[], Iterable[PodSpec]],
        journal: Journal,
        clock: Callable[[], float],
        rng: random.Random | None,
    ) -> None:
        self.folder = folder
        self.faults = Faults()
        self._journal = journal
        self._active = active
        self.registry = Registry(clock)
        self.allocator = Allocator(self.registry, self._active_uids, self, rng)
        self._registration: Registration | None = None
        self._servers: list[grpc.aio.Server] = []

    def _active_uids(self) -> Iterable[str]:
        return [pod.uid for pod in self._active()]

    async def start(self) -> None:
        """Begins a life."""
        self._make_folders()
        self._restore()
        self._registration = Registration(
            plugins_folder(self.folder), self.registry, self._journal, self.faults, self._changed
        )
        registrations = grpc.aio.server()
        add_RegistrationServicer_to_server(self._registration, registrations)
        resources = grpc.aio.server()
        service = PodResources(self._active, self.allocator, self.registry)
        add_PodResourcesListerServicer_to_server(service, resources)
        self._servers = [registrations, resources]
        await self._serve(registrations, resources)

    async def _serve(self, registrations: grpc.aio.Server, resources: grpc.aio.Server) -> None:
        """Delete the sockets of earlier runs, then publish its own."""
        own, other = registration_socket(self.folder), pod_resources_socket(self.folder)
        async with serving(registrations, own) as new_own, serving(resources, other) as new_other:
            deleted = delete_stale(own.parent, keep={own, checkpoint_file(self.folder)})
            LOG.info("kubelet starts", folder=str(self.folder), deleted=deleted)
            publish(new_other, other)
            publish(new_own, own)

    async def stop(self) -> None:
        """Ends a life; leaves all files."""
        registration, self._registration = self._registration, None
        servers, self._servers = self._servers, []
        if registration is not None:
            await registration.close()
        for server in servers:
            await server.stop(None)

    def _make_folders(self) -> None:
        plugins_folder(self.folder).mkdir(mode=0o750, parents=True, exist_ok=True)
        pod_resources_socket(self.folder).parent.mkdir(mode=0o750, exist_ok=True)

    def _restore(self) -> None:
        try:
            content = checkpoint_file(self.folder).read_bytes()
            entries, resources = decode_checkpoint(content)
        except FileNotFoundError:
            entries, resources = (), ()
        except CorruptCheckpoint as error:
            LOG.warning("checkpoint ignored", reason=str(error))
            entries, resources = (), ()
        self.allocator.restore(entries)
        self.registry.restore(resources)

    def save(self) -> None:
        """Writes the checkpoint."""
        content = encode_checkpoint(self.allocator.ledger, self.registry.registered())
        replace_file(checkpoint_file(self.folder), content, mode=0o600)

    def _changed(self) -> None:
        """Save a change of a plugin, and wake those who wait."""
        try:
            self.save()
        except OSError as error:
            LOG.warning("checkpoint not written", reason=str(error))
        self._journal.ring()

    async def allocate(self, pod: PodSpec) -> None:
        """Gives a pod's containers their devices."""
        await self.allocator.allocate(pod)

    async def query_preferred(
        self, resource: str, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Collection[str]:
        """Ask a plugin which of the available devices it prefers."""
        ids, must = tuple(available), tuple(must_include)
        self._journal.call(Call("GetPreferredAllocation", resource, ids, must, size))
        return await self._plugins.client(resource).preferred(available, must_include, size)

    async def query_allocate(
        self, resource: str, ids: Sequence[str]
    ) -> ContainerAllocateResponse | None:
        """Ask a plugin what a container needs for devices."""
        self._journal.call(Call("Allocate", resource, tuple(ids)))
        return await self._plugins.client(resource).allocate(ids)

    async def pre_start(self, call: PreStart) -> None:
        """Let a plugin prepare the devices of a container that is about to start."""
        self._journal.call(Call("PreStartContainer", call.resource, call.ids))
        await self._plugins.client(call.resource).pre_start(call)

    async def cut(self, resource: str) -> None:
        """Breaks the connection to a resource's plugin."""
        await self._plugins.cut(resource)

    @property
    def _plugins(self) -> Registration:
        if self._registration is None:
            raise PluginFailed("the kubelet is stopped")
        return self._registration

    @property
    def resources(self) -> NodeResources:
        """What the node's status says now."""
        return self.registry.node_resources()
