"""The gRPC server of one resource: streams its devices to the kubelet.

A server exists for one registration, with a socket and streams of its own, so that ending it ends
nothing else. A kubelet counts the devices that its stream was sent last, for five minutes beyond
the end of that stream, unless the last list was empty. Of a resource whose devices a pod has it
wants an endpoint whenever a container of the pod starts.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import grpc.aio
import structlog

from services.devices.model import Device
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet.sockets import Identity, dial, listen
from services.kubelet.values import HEALTHY, UNHEALTHY
from services.node.kubelet_folder import KubeletFolder
from services.node.state import NodeState
from services.process.errors import KubeletError


class Counted(Protocol):
    """Knows which resources the kubelet counts."""

    def note_sent(self, resource: str, *, is_empty: bool) -> None:
        """Note what the kubelet's stream of a resource is sent."""

    def resources(self) -> Collection[str]:
        """The resources that are counted, in the order of their names."""


class CountedResources:
    """Notes what each resource's stream was sent, for the kubelet of a folder.

    The kubelet counts a resource of which pods have devices too, as the `state` of the node says.
    """

    def __init__(self, folder: KubeletFolder, state: NodeState) -> None:
        self._folder = folder
        self._state = state
        self._kubelets: dict[str, Identity] = {}
        self._ours: set[str] = set()

    def note_sent(self, resource: str, *, is_empty: bool) -> None:
        """Note what the kubelet's stream of a resource is sent."""
        kubelet = self._folder.kubelet
        self._ours.add(resource)
        if is_empty or kubelet is None:
            self._kubelets.pop(resource, None)
        else:
            self._kubelets[resource] = kubelet

    def take_over(self, resources: Iterable[str]) -> None:
        """Count resources that a process before this one has left behind."""
        for resource in resources:
            self.note_sent(resource, is_empty=False)

    def resources(self) -> Collection[str]:
        """The resources of this or an earlier process that are counted or held, sorted."""
        # A restarted one counts nothing.
        kubelets = self._kubelets.items()
        counted = {name for name, counts in kubelets if counts == self._folder.kubelet}
        held = {resource for resource, _ in self._state.ledger.holders}
        return sorted(counted | (held & self._ours))


GRACE_SECONDS: Final = 1.0
"""For streams and other calls to end by themselves when a server closes."""

STOP_SECONDS: Final = 3.0
"""For the server to stop; the plugin does not wait longer."""

log = structlog.get_logger(component="node")

Context = grpc.aio.ServicerContext[Any, Any]


class DeviceListServer(rpc.DevicePluginServicer):
    """Streams one resource's devices on one socket, whose path must be new.

    The kubelet needs no answer before it starts a container; allocations are not served.
    """

    allocates = False
    """Whether devices can be allocated."""

    def __init__(
        self, resource: str, devices: Mapping[str, Device], path: Path, counted: Counted
    ) -> None:
        self.resource = resource
        self.path = path
        self.opened = asyncio.Event()
        """Set once the kubelet has opened a stream."""
        self.cut = asyncio.Event()
        """Set once the kubelet has ended its stream."""
        self._devices = devices
        self._listing = _listing(devices)
        self._counted = counted
        self._server: grpc.aio.Server | None = None
        self._changed = asyncio.Event()
        self._ending = False

    @property
    def options(self) -> pb.DevicePluginOptions:
        """The calls that the kubelet makes before it starts a container or chooses devices."""
        return pb.DevicePluginOptions()

    async def start(self) -> None:
        """Serve on its socket.

        Raises:
            KubeletError: The socket can't be made.
        """
        server = grpc.aio.server()
        rpc.add_DevicePluginServicer_to_server(self, server)
        listen(server, self.path)
        self._server = server
        # One that is cancelled while it starts fails when it is stopped (InvalidStateError).
        await _uninterrupted(server.start())

    async def close(self) -> None:
        """End the streams, then the calls, then the server with its socket; also if cancelled."""
        if self._server is not None:
            server, self._server = self._server, None
            # One that is left running would keep its socket in the folder.
            await _uninterrupted(self._end(server))

    async def _end(self, server: grpc.aio.Server) -> None:
        self._ending = True
        self._changed.set()  # a stream that didn't end would make the server wait the whole grace
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await server.stop(GRACE_SECONDS)
        except TimeoutError:
            log.warning("the gRPC server did not stop in time", resource=self.resource)
            self.path.unlink(missing_ok=True)

    def update(self, devices: Mapping[str, Device]) -> None:
        """Offer these devices (by id) from now on, and stream them if the list changes."""
        if devices is self._devices:
            return  # the scan found no change
        self._devices = devices
        new = _listing(devices)
        if new == self._listing:
            return
        self._stream(new)

    def resend(self) -> None:
        """Stream the same list once more."""
        self._stream(_listing(self._devices))  # a new message, which is not the one sent last

    def _stream(self, listing: pb.ListAndWatchResponse) -> None:
        self._listing = listing
        self._changed.set()
        self._changed = asyncio.Event()

    async def alive(self, seconds: float) -> None:
        """Call itself on its own socket.

        Raises:
            KubeletError: No answer.
        """
        async with dial(self.path) as channel:
            try:
                await rpc.DevicePluginStub(channel).GetDevicePluginOptions(
                    pb.Empty(), timeout=seconds
                )
            except grpc.aio.AioRpcError as error:
                raise KubeletError(
                    f"{self.resource} doesn't answer on {self.path}: {error.code().name}"
                ) from error

    # The calls of the kubelet; the protocol defines their names.

    async def GetDevicePluginOptions(  # noqa: N802
        self,
        request: pb.Empty,  # noqa: ARG002 - holds nothing
        context: Context,  # noqa: ARG002 - no need of it
    ) -> pb.DevicePluginOptions:
        """Answer with the calls that the kubelet has to make."""
        return self.options

    async def ListAndWatch(  # noqa: N802
        self,
        request: pb.Empty,  # noqa: ARG002 - holds nothing
        context: Context,  # noqa: ARG002 - no need of it
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        """The devices now and after each change, until either side ends it."""
        is_kubelet = not self.opened.is_set()  # it opens its stream at once, and only one
        self.opened.set()
        sent = None
        try:
            while True:
                # A slow stream skips to the newest list, and one that ends sends it before.
                if self._listing is not sent:
                    sent = self._listing
                    if is_kubelet and sent.devices:  # from now on, whatever becomes of the stream
                        self._counted.note_sent(self.resource, is_empty=False)
                    yield sent
                    if is_kubelet and not sent.devices:  # not before it is sent
                        self._counted.note_sent(self.resource, is_empty=True)
                elif self._ending:
                    return
                else:
                    await self._changed.wait()
        finally:
            if is_kubelet and not self._ending:
                self.cut.set()


async def _uninterrupted(step: Coroutine[Any, Any, None]) -> None:
    """Finish a short step, even if cancelled meanwhile."""
    task = asyncio.ensure_future(step)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def _listing(devices: Mapping[str, Device]) -> pb.ListAndWatchResponse:
    """The message with all devices, sorted: the same devices make the same message."""
    return pb.ListAndWatchResponse(devices=[_device(devices[key]) for key in sorted(devices)])


def _device(device: Device) -> pb.Device:
    message = pb.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
    if device.numa_node is not None:  # set but empty breaks the single-numa-node policy
        message.topology.nodes.add(ID=device.numa_node)
    return message
