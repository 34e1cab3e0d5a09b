"""One resource's gRPC server: what the kubelet asks, and what it is streamed.

A server lives as long as one registration does. Its socket is its own and its streams know only
itself, so that ending it ends just what the kubelet had from it; see `plugin.endpoint` for when.

`ListAndWatch` sends the devices at once and after each change. Every stream remembers what it sent
last: one that is slow skips to the newest list instead of queueing all of them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import structlog

from services.devices.allocation import ContainerAllocation, allocate
from services.devices.model import Device, PluginMode
from services.devices.preference import prefer
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet.sockets import HEALTHY, UNHEALTHY, dial, listen
from services.node.start_gate import StartGate
from services.process.errors import (
    AccelbindError,
    AskerError,
    BitstreamMissing,
    DeviceHung,
    DeviceRefused,
    KubeletError,
    NotMapped,
    TooSlow,
)
from services.process.text import clip

DRAIN_SECONDS: Final = 1.0
"""For streams to end by themselves when a server closes."""

GRACE_SECONDS: Final = 0.5
"""For calls under way after that; what still runs then is cancelled."""

STOP_SECONDS: Final = 2.0
"""For the server to be stopped by then; one that isn't holds up nobody for longer."""

MAX_DETAILS: Final = 2000
"""Characters of an error's text; it travels in a header and ends in a pod's event."""

log = structlog.get_logger(room="plugin")

Context = grpc.aio.ServicerContext[Any, Any]


class Counters(Protocol):
    """What a server counts."""

    def allocated(self, resource: str, outcome: str) -> None:
        """One container's `Allocate` was answered."""

    def prestarted(self, outcome: str) -> None:
        """One `PreStartContainer` was answered."""


class ResourceServer(rpc.DevicePluginServicer):
    """Serves one resource on one socket.

    Args:
        resource: Full resource name.
        devices: Its devices by id, to begin with.
        mode: The node's mode.
        device_root: Folder below which the host's `dev/` is, as the host sees it.
        gate: Asked before a container starts; without one, the kubelet doesn't ask.
        counters: What to count with.
        cdi: Ids of the devices to name by CDI, as of now.
        hooked: Whether an OCI hook programs them; then they are given by CDI alone.
    """

    def __init__(
        self,
        resource: str,
        devices: Mapping[str, Device],
        *,
        mode: PluginMode,
        device_root: str,
        gate: StartGate | None,
        counters: Counters,
        cdi: Callable[[], Collection[str]] = frozenset,
        hooked: bool = False,
    ) -> None:
        self.resource = resource
        self.path: Path | None = None
        self.opened = asyncio.Event()
        """Set once the kubelet has opened a stream."""
        self.cut = asyncio.Event()
        """Set once the kubelet has ended its stream: the first that was opened, since the kubelet
        knows of the socket before anybody else; who looks on holds up no other registration."""
        self.news = asyncio.Event()
        """Set with either of them, for who waits for one thing or another; cleared by that one."""
        self.called = 0.0
        """When it last answered a call of our own, by the monotonic clock; 0 if it never did."""
        self._devices = devices
        self._listing = listing(devices)
        self._mode = mode
        self._device_root = device_root
        self._gate = gate
        self._counters = counters
        self._cdi = cdi
        self._hooked = hooked
        self._server: grpc.aio.Server | None = None
        self._streams: set[asyncio.Event] = set()
        self._first: asyncio.Event | None = None
        self._behind: set[asyncio.Event] = set()
        self._drained = asyncio.Event()
        self._ending = False

    @property
    def options(self) -> pb.DevicePluginOptions:
        """What the kubelet should call before it starts a container or chooses devices."""
        return pb.DevicePluginOptions(
            pre_start_required=self._gate is not None, get_preferred_allocation_available=True
        )

    async def start(self, path: Path) -> None:
        """Serves on a socket that nothing else has.

        Raises:
            KubeletError: The socket can't be made.
        """
        server = grpc.aio.server()
        rpc.add_DevicePluginServicer_to_server(self, server)
        listen(server, path)
        self._server, self.path = server, path
        await _to_the_end(server.start())

    async def close(self) -> None:
        """Ends the streams, then the calls, then the server, and with it its socket.

        Also if cancelled meanwhile: a server left running would keep its socket in the folder.
        """
        if self._server is not None:
            server, self._server = self._server, None
            await _to_the_end(self._end(server))

    async def _end(self, server: grpc.aio.Server) -> None:
        self._ending = True
        for wake in self._streams:
            wake.set()
        if self._streams:
            # Stopping a server with an open stream waits the whole grace: end the streams first.
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._drained.wait()
        stopping = asyncio.ensure_future(server.stop(GRACE_SECONDS))
        done, _ = await asyncio.wait([stopping], timeout=STOP_SECONDS)
        for each in done:
            each.result()
        if not done:
            log.error("a server doesn't stop, it is left behind", resource=self.resource)

    def update(self, devices: Mapping[str, Device]) -> None:
        """Takes the resource's devices as they are now, and streams them if that changes the list.

        Args:
            devices: By id.
        """
        if devices is self._devices:
            return  # a look at the cards that saw what the last one saw
        self._devices = devices
        new = listing(devices)
        if new == self._listing:
            return
        self._listing = new
        self._behind |= self._streams
        for wake in self._streams:
            wake.set()

    @property
    def behind(self) -> bool:
        """Whether the devices as they are now have yet to be sent, if that is possible at all."""
        return bool(self._behind) or self.cut.is_set()

    async def alive(self, seconds: float) -> None:
        """Makes a real call to our own socket.

        Raises:
            KubeletError: No answer.
        """
        if self.path is None:
            raise KubeletError(f"{self.resource} is not served")
        async with dial(self.path) as channel:
            try:
                await rpc.DevicePluginStub(channel).GetDevicePluginOptions(
                    pb.Empty(), timeout=seconds
                )
            except grpc.aio.AioRpcError as error:
                raise KubeletError(
                    f"{self.resource} doesn't answer on {self.path}: {error.code().name}"
                ) from error
        self.called = time.monotonic()

    # The kubelet's calls; their names are the protocol's.

    async def GetDevicePluginOptions(  # noqa: N802
        self,
        request: pb.Empty,  # noqa: ARG002 - holds nothing
        context: grpc.aio.ServicerContext[pb.Empty, pb.DevicePluginOptions],  # noqa: ARG002
    ) -> pb.DevicePluginOptions:
        """What the kubelet should call; also the kubelet's first sign of life during `Register`."""
        return self.options

    async def ListAndWatch(  # noqa: N802
        self,
        request: pb.Empty,  # noqa: ARG002 - holds nothing
        context: grpc.aio.ServicerContext[pb.Empty, pb.ListAndWatchResponse],  # noqa: ARG002
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        """The devices now, and again after each change, until either side ends it."""
        wake = asyncio.Event()
        self._streams.add(wake)
        self._first = self._first or wake
        self.opened.set()
        self.news.set()
        sent = None
        try:
            while not self._ending:
                wake.clear()
                if self._listing is not sent:
                    sent = self._listing
                    yield sent
                else:
                    self._behind.discard(wake)
                    await wake.wait()
        finally:
            self._behind.discard(wake)
            self._streams.discard(wake)
            if not self._streams and self._ending:
                self._drained.set()
            elif wake is self._first and not self._ending:
                self.cut.set()
            self.news.set()

    async def GetPreferredAllocation(  # noqa: N802
        self,
        request: pb.PreferredAllocationRequest,
        context: grpc.aio.ServicerContext[  # noqa: ARG002 - no need of it
            pb.PreferredAllocationRequest, pb.PreferredAllocationResponse
        ],
    ) -> pb.PreferredAllocationResponse:
        """The devices that each container should get: one answer a request, in their order."""
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=self._prefer(each))
                for each in request.container_requests
            ]
        )

    def _prefer(self, asked: pb.ContainerPreferredAllocationRequest) -> list[str]:
        must, size = asked.must_include_deviceIDs, asked.allocation_size
        return prefer(self._devices, asked.available_deviceIDs, must, size)

    async def Allocate(  # noqa: N802
        self,
        request: pb.AllocateRequest,
        context: grpc.aio.ServicerContext[pb.AllocateRequest, pb.AllocateResponse],
    ) -> pb.AllocateResponse:
        """What each container needs for its devices: one answer a request, in their order."""
        requests = [list(each.devices_ids) for each in request.container_requests]
        async with self._answering(context, "Allocate", devices=requests):
            try:
                given = [self._allocate(ids) for ids in requests]
            except AccelbindError:
                self._counters.allocated(self.resource, "refused")
                raise
        for ids, one in zip(requests, given, strict=True):
            self._counters.allocated(self.resource, "given")
            log.info(
                "allocated",
                resource=self.resource,
                devices=ids,
                nodes=[each.host_path for each in one.devices],
                cdi=list(one.cdi_devices),
            )
        return pb.AllocateResponse(container_responses=[message(one) for one in given])

    def _allocate(self, ids: Sequence[str]) -> ContainerAllocation:
        return allocate(
            self._devices,
            ids,
            mode=self._mode,
            host_root=self._device_root,
            cdi=self._cdi(),
            hooked=self._hooked,
        )

    async def PreStartContainer(  # noqa: N802
        self,
        request: pb.PreStartContainerRequest,
        context: grpc.aio.ServicerContext[
            pb.PreStartContainerRequest, pb.PreStartContainerResponse
        ],
    ) -> pb.PreStartContainerResponse:
        """The last word before a container starts, where the kubelet was told to ask."""
        ids = list(request.devices_ids)
        async with self._answering(context, "PreStartContainer", devices=ids):
            if self._gate is not None:
                outcome = "failed"
                try:
                    await self._gate.authorize_start(self.resource, ids)
                    outcome = "allowed"
                except AskerError:
                    outcome = "refused"
                    raise
                except AccelbindError:
                    outcome = "unverifiable"
                    raise
                finally:
                    self._counters.prestarted(outcome)
        return pb.PreStartContainerResponse()

    @asynccontextmanager
    async def _answering(
        self, context: Context, call: str, **values: object
    ) -> AsyncIterator[None]:
        """Where errors become gRPC codes, once."""
        try:
            yield
        except AccelbindError as error:
            log.warning("refused", call=call, resource=self.resource, reason=str(error), **values)
            await context.abort(code_of(error), clip(str(error), MAX_DETAILS))
        except Exception as error:
            log.exception("mistake of ours", call=call, resource=self.resource, **values)
            text = f"accelbind has made a mistake in {call}: {type(error).__name__}: {error}"
            await context.abort(MISTAKE_CODE, clip(text, MAX_DETAILS))


async def _to_the_end(step: Coroutine[Any, Any, None]) -> None:
    """A step that is soon done and must be, however often we are cancelled meanwhile.

    A gRPC server that is cancelled while it starts fails when it is stopped (InvalidStateError).
    """
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


CODES: Final = (
    (NotMapped, grpc.StatusCode.PERMISSION_DENIED),
    (AskerError, grpc.StatusCode.FAILED_PRECONDITION),
    (BitstreamMissing, grpc.StatusCode.NOT_FOUND),
    (DeviceHung, grpc.StatusCode.DEADLINE_EXCEEDED),
    (TooSlow, grpc.StatusCode.DEADLINE_EXCEEDED),
    (DeviceRefused, grpc.StatusCode.INTERNAL),
)
"""By kind of error, the first that fits."""

OTHER_CODE: Final = grpc.StatusCode.UNAVAILABLE
"""Of any other error: the world is in the way, and may not be next time."""

MISTAKE_CODE: Final = grpc.StatusCode.INTERNAL
"""A mistake of accelbind's own; the plugin's log has the traceback."""


def code_of(error: AccelbindError) -> grpc.StatusCode:
    """The gRPC code that says whose fault an error is.

    What the asker wants doesn't fit the node as it is: FAILED_PRECONDITION. The world is in the
    way, and may not be next time: UNAVAILABLE. Some say it more exactly.
    """
    for kind, code in CODES:
        if isinstance(error, kind):
            return code
    return OTHER_CODE


def listing(devices: Mapping[str, Device]) -> pb.ListAndWatchResponse:
    """Devices as the kubelet is told them, in the order of their ids."""
    return pb.ListAndWatchResponse(devices=[_told(devices[key]) for key in sorted(devices)])


def _told(device: Device) -> pb.Device:
    told = pb.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
    if device.numa_node is not None:  # set but empty breaks the single-numa-node policy
        told.topology.nodes.add(ID=device.numa_node)
    return told


def message(given: ContainerAllocation) -> pb.ContainerAllocateResponse:
    """One container's allocation as the kubelet reads it."""
    return pb.ContainerAllocateResponse(
        envs=given.envs,
        devices=[
            pb.DeviceSpec(
                container_path=each.container_path,
                host_path=each.host_path,
                permissions=each.permissions,
            )
            for each in given.devices
        ],
        annotations=given.annotations,
        cdi_devices=[pb.CDIDevice(name=name) for name in given.cdi_devices],
    )
