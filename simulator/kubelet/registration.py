"""Registration: plugins register, are dialled back, and are followed until they end.

    Register ─▶ version and name checked ─▶ dialled, GetDevicePluginOptions ─▶ answered
                                                        └─▶ ListAndWatch followed until its end

Errors are worded as Go's gRPC words them.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import grpc
import grpc.aio
import structlog

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet.deviceplugin_pb2_grpc import DevicePluginStub, RegistrationServicer
from services.kubelet.sockets import API_VERSION, address, dial, listen
from services.kubelet.values import HEALTHY
from services.process.errors import KubeletError
from simulator.kubelet.devices import Device, ResourceTable
from simulator.kubelet.pods import Journal, is_extended_resource

LOG = structlog.get_logger()

T = TypeVar("T")
Context: TypeAlias = grpc.aio.ServicerContext[pb.RegisterRequest, pb.Empty]

PRE_START_SECONDS: Final = 30.0
"""The deadline of PreStartContainer (`KubeletPreStartContainerRPCTimeoutInSecs`)."""

DIAL_SECONDS: Final = 10.0
"""How long the kubelet tries to reach the socket of a plugin that registers."""

UNSUPPORTED: Final = (
    'requested API version "%s" is not supported by kubelet. Supported version is ["%s"]'
)


class PluginFailed(KubeletError):
    """A plugin could not be called, or answered with an error; the text is Go's for the error."""


class PluginClient:
    """A connection to a plugin; once closed it stays closed."""

    def __init__(self, resource: str, path: Path, journal: Journal) -> None:
        self.resource = resource
        self._journal = journal
        self._channel = dial(path)
        self._stub = DevicePluginStub(self._channel)
        self.closed = False

    async def connect(self) -> pb.DevicePluginOptions:
        """Dial, and ask what the plugin can do."""
        self._journal.call("GetDevicePluginOptions", self.resource)
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise PluginFailed("failed to dial device plugin: context deadline exceeded") from error
        return await self._call(self._stub.GetDevicePluginOptions(pb.Empty()))

    async def watch(self, on_list: Callable[[str, Iterable[Device]], None]) -> str:
        """Follow ListAndWatch; returns why it ended."""
        self._journal.call("ListAndWatch", self.resource)
        try:
            call = self._stub.ListAndWatch(pb.Empty())
        except grpc.aio.UsageError as error:  # it was dropped before it could be asked
            return str(error)
        try:
            while True:
                response = await self._call(call.read())
                if not isinstance(response, pb.ListAndWatchResponse):
                    return "EOF"
                on_list(self.resource, [_device(each) for each in response.devices])
        except PluginFailed as error:
            return str(error)
        finally:
            call.cancel()

    async def preferred(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> tuple[str, ...]:
        self._journal.call("GetPreferredAllocation", self.resource, tuple(available))
        request = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        response = await self._call(
            self._stub.GetPreferredAllocation(
                pb.PreferredAllocationRequest(container_requests=[request])
            )
        )
        answers = response.container_responses
        return tuple(answers[0].deviceIDs) if answers else ()

    async def allocate(self, ids: Sequence[str]) -> pb.ContainerAllocateResponse | None:
        """Ask what a container needs for its devices; None if the answer is empty."""
        self._journal.call("Allocate", self.resource, tuple(ids))
        request = pb.ContainerAllocateRequest(devices_ids=ids)
        response = await self._call(
            self._stub.Allocate(pb.AllocateRequest(container_requests=[request]))
        )
        return response.container_responses[0] if response.container_responses else None

    async def pre_start(self, ids: Sequence[str]) -> None:
        self._journal.call("PreStartContainer", self.resource, tuple(ids))
        request = pb.PreStartContainerRequest(devices_ids=ids)
        await self._call(self._stub.PreStartContainer(request, timeout=PRE_START_SECONDS))

    async def close(self) -> None:
        self.closed = True
        await self._channel.close()

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise PluginFailed(go_text(error.code(), error.details() or "")) from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            # gRPC cancels the calls of a channel that is closed as if their caller had been.
            task = asyncio.current_task()
            if not self.closed or (task is not None and task.cancelling()):
                raise
            text = go_text(grpc.StatusCode.CANCELLED, "grpc: the client connection is closing")
            raise PluginFailed(text) from error


def go_text(code: grpc.StatusCode, details: str) -> str:
    """An error as Go prints it: `rpc error: code = NotFound desc = …`."""
    return f"rpc error: code = {code.name.title().replace('_', '')} desc = {details}"


def _device(device: pb.Device) -> Device:
    nodes = tuple(node.ID for node in device.topology.nodes)
    return Device(device.ID, device.health == HEALTHY, nodes)


@dataclass(slots=True)
class Faults:
    """Faults of registrations."""

    refuse: str = ""
    """The text that they are refused with."""
    hang: bool = False
    """Whether they are left unanswered."""
    ignore: bool = False
    """Whether they are answered, and the plugin is never asked for its devices."""


class Registration(RegistrationServicer):
    """The registration service of one life of a kubelet, and its plugins."""

    def __init__(
        self,
        folder: Path,
        resources: ResourceTable,
        journal: Journal,
        faults: Faults,
        on_change: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._resources = resources
        self._journal = journal
        self._faults = faults
        self._on_change = on_change
        # Two tables, as in the real kubelet: the client that is called, the last that registered a
        # resource; and the one to disconnect when a stream of the resource ends, whichever that is.
        # So the end of an old stream disconnects a new client (measured on 1.36.2).
        self._endpoints: dict[str, PluginClient] = {}
        self._clients: dict[str, PluginClient] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._closed = False

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.Empty:  # noqa: N802 - the protocol's name
        resource = request.resource_name
        self._journal.call("Register", resource)
        await self._journal.until(lambda: not self._faults.hang)
        try:
            self._check(request)
            if not self._faults.ignore:
                path = self._folder / request.endpoint
                await self._connect(PluginClient(resource, path, self._journal))
        except KubeletError as error:
            LOG.warning("registration refused", resource=resource, reason=str(error))
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        self._journal.call("Registered", resource)
        LOG.info("plugin registered", resource=resource, endpoint=request.endpoint)
        return pb.Empty()

    def _check(self, request: pb.RegisterRequest) -> None:
        if self._faults.refuse:
            raise KubeletError(self._faults.refuse)
        if request.version != API_VERSION:
            raise KubeletError(UNSUPPORTED % (request.version, API_VERSION))
        if not is_extended_resource(request.resource_name):
            raise KubeletError(f'the ResourceName "{request.resource_name}" is invalid')

    async def _connect(self, client: PluginClient) -> None:
        self._clients[client.resource] = client
        try:
            options = await client.connect()
        except PluginFailed:
            self._clients.pop(client.resource, None)
            await client.close()
            raise
        self._endpoints[client.resource] = client
        self._resources.connected(client.resource, options)
        self._on_change()
        task = asyncio.create_task(self._follow(client), name=f"follow {client.resource}")
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _follow(self, client: PluginClient) -> None:
        """Follow one client's stream; at its end the resource's *current* client is dropped."""
        reason = await client.watch(self._listed)
        current = self._clients.pop(client.resource, None)
        if current is not None:
            LOG.info("plugin lost", resource=client.resource, reason=reason)
            self._resources.disconnected(client.resource)
            self._journal.call("Disconnected", client.resource)
            self._on_change()
            await current.close()
        await client.close()

    def _listed(self, resource: str, devices: Iterable[Device]) -> None:
        if not self._closed:
            self._resources.listed(resource, devices)
            self._on_change()

    def client(self, resource: str) -> PluginClient:
        """The client of a resource; PluginFailed if there is none that can be called."""
        client = self._endpoints.get(resource)
        if client is None:
            raise PluginFailed(f"unknown Device Plugin {resource}")
        if client.closed:
            raise PluginFailed(f"endpoint {resource} has been stopped")
        return client

    async def cut(self, resource: str) -> None:
        """Break the connection to a resource's plugin, as if the network had."""
        await self._endpoints[resource].close()

    async def close(self) -> None:
        self._closed = True
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for client in {*self._endpoints.values(), *self._clients.values()}:
            await client.close()


async def serve(server: grpc.aio.Server, path: Path) -> None:
    """Start a server on a socket whose file is neither removed nor reused when it stops."""
    # A kubelet that ends leaves its sockets; gRPC for Python removes a socket with its server, and
    # a second server of one process on the same path loses its socket to the first. So the server
    # is bound in a scratch folder beside, and the socket is linked to its place: for a watcher, a
    # file is created there, with a new inode.
    address(path)  # the scratch path is shorter: check this one
    scratch = Path(tempfile.mkdtemp(prefix=".k", dir=path.parent.parent))
    try:
        listen(server, scratch / "s")
        await server.start()
        path.unlink(missing_ok=True)  # noqa: ASYNC240 - on a disk of this machine
        os.link(scratch / "s", path)
    finally:
        shutil.rmtree(scratch)


def delete_files(folder: Path, *, keep: Collection[Path]) -> None:
    """Delete the files of a folder, but no folders (`CleanupPluginDirectory` of the kubelet)."""
    for path in folder.iterdir():
        if path not in keep and not path.is_dir():
            path.unlink(missing_ok=True)
