"""The gRPC server of one resource: answers the kubelet's calls and streams the devices.

A server exists for one registration, with a socket and streams of its own, so that ending it ends
nothing else.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import structlog

from plugin.counted import CountedResources
from plugin.metrics import PluginMetrics
from services.devices.allocation import ContainerAllocation, allocate
from services.devices.model import Device, DeviceNode
from services.devices.preference import prefer
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet.sockets import dial, listen
from services.kubelet.values import HEALTHY, UNHEALTHY
from services.node.node_check import require_numbers
from services.node.start_gate import StartPolicy
from services.process.errors import (
    AccelbindError,
    BitstreamMissing,
    DeviceHung,
    DeviceRefused,
    InvalidInput,
    KubeletError,
    NotMapped,
    TooSlow,
)
from services.process.text import clip

GRACE_SECONDS: Final = 1.0
"""For streams and other calls to end by themselves when a server closes."""

STOP_SECONDS: Final = 3.0
"""For the server to stop; the plugin does not wait longer."""

MAX_DETAILS: Final = 2000  # characters: the text is sent in a header, and in the pod's events

CODES: Final = (
    (NotMapped, grpc.StatusCode.PERMISSION_DENIED),
    (InvalidInput, grpc.StatusCode.FAILED_PRECONDITION),
    (BitstreamMissing, grpc.StatusCode.NOT_FOUND),
    (DeviceHung, grpc.StatusCode.DEADLINE_EXCEEDED),
    (TooSlow, grpc.StatusCode.DEADLINE_EXCEEDED),
    (DeviceRefused, grpc.StatusCode.INTERNAL),
)
"""gRPC codes by kind of error; the first that fits counts."""

OTHER_CODE: Final = grpc.StatusCode.UNAVAILABLE
"""Of any other error: the environment failed, and may work next time."""

INTERNAL_CODE: Final = grpc.StatusCode.INTERNAL
"""An internal error of accelbind; the plugin's log has the traceback."""

log = structlog.get_logger(component="plugin")

Context = grpc.aio.ServicerContext[Any, Any]


class ResourceServer(rpc.DevicePluginServicer):
    """Serves one resource on one socket, whose path must be new.

    Without `policies` the kubelet doesn't ask before a start. `cdi` returns the ids of the devices
    to name by CDI; if they are `hooked`, an OCI hook programs them, and they are only named by CDI.
    """

    def __init__(
        self,
        resource: str,
        devices: Mapping[str, Device],
        path: Path,
        *,
        device_root: str,
        policies: Sequence[StartPolicy],
        root: Path,
        metrics: PluginMetrics,
        counted: CountedResources,
        cdi: Callable[[], Collection[str]] = frozenset,
        hooked: bool = False,
    ) -> None:
        self.resource = resource
        self.path = path
        self.opened = asyncio.Event()
        """Set once the kubelet has opened a stream."""
        self.cut = asyncio.Event()
        """Set once the kubelet has ended its stream."""
        self._devices = devices
        self._listing = _listing(devices)
        self._device_root = device_root
        self._policies = policies
        self._root = root
        self._metrics = metrics
        self._counted = counted
        self._cdi = cdi
        self._hooked = hooked
        self._server: grpc.aio.Server | None = None
        self._changed = asyncio.Event()
        self._ending = False

    @property
    def options(self) -> pb.DevicePluginOptions:
        """What the kubelet has to call before it starts a container or chooses devices."""
        return pb.DevicePluginOptions(
            pre_start_required=bool(self._policies), get_preferred_allocation_available=True
        )

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
        """What the kubelet has to call."""
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

    async def GetPreferredAllocation(  # noqa: N802
        self,
        request: pb.PreferredAllocationRequest,
        context: Context,  # noqa: ARG002 - no need of it
    ) -> pb.PreferredAllocationResponse:
        """The devices that each container should get: one answer per request, in order."""
        chosen = (
            prefer(
                self._devices,
                each.available_deviceIDs,
                each.must_include_deviceIDs,
                each.allocation_size,
            )
            for each in request.container_requests
        )
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen
            ]
        )

    async def Allocate(  # noqa: N802
        self, request: pb.AllocateRequest, context: Context
    ) -> pb.AllocateResponse:
        """What each container needs for its devices: one answer per request, in order."""
        requests = [list(each.devices_ids) for each in request.container_requests]
        # An error fails the pod for good (UnexpectedAdmissionError). What may change by itself is
        # refused in PreStartContainer, which the kubelet calls again every 10 to 20 s.
        async with self._answering(context, "Allocate", devices=requests):
            try:
                given = [self._allocate(ids) for ids in requests]
                require_numbers(self._root, self._nodes(chain.from_iterable(requests)))
            except AccelbindError:
                self._metrics.allocations.labels(self.resource, "refused").inc()
                raise
        answers = [_allocation(each, self._device_root) for each in given]
        for ids, one in zip(requests, answers, strict=True):
            self._metrics.allocations.labels(self.resource, "given").inc()
            log.info(
                "allocated",
                resource=self.resource,
                devices=ids,
                nodes=[node.host_path for node in one.devices],
                cdi=[each.name for each in one.cdi_devices],
            )
        return pb.AllocateResponse(container_responses=answers)

    def _nodes(self, ids: Iterable[str]) -> list[DeviceNode]:
        return [node for each in ids for node in self._devices[each].nodes]

    def _allocate(self, ids: Sequence[str]) -> ContainerAllocation:
        return allocate(self._devices, ids, cdi=self._cdi(), hooked=self._hooked)

    async def PreStartContainer(  # noqa: N802
        self, request: pb.PreStartContainerRequest, context: Context
    ) -> pb.PreStartContainerResponse:
        """Decide whether a container may start."""
        ids = list(request.devices_ids)
        async with self._answering(context, "PreStartContainer", devices=ids):
            if self._policies:
                try:
                    for policy in self._policies:
                        await policy(self.resource, ids)
                except Exception as error:
                    self._metrics.prestarts.labels(_outcome(error)).inc()
                    raise
                self._metrics.prestarts.labels("allowed").inc()
        return pb.PreStartContainerResponse()

    @asynccontextmanager
    async def _answering(
        self, context: Context, call: str, **values: object
    ) -> AsyncIterator[None]:
        """Turn errors into gRPC codes."""
        try:
            yield
        except AccelbindError as error:
            log.warning("refused", call=call, resource=self.resource, reason=str(error), **values)
            await context.abort(_code_of(error), clip(str(error), MAX_DETAILS))
        except Exception as error:
            log.exception("internal error", call=call, resource=self.resource, **values)
            text = f"internal error of accelbind in {call}: {type(error).__name__}: {error}"
            await context.abort(INTERNAL_CODE, clip(text, MAX_DETAILS))


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


def _outcome(error: Exception) -> str:
    if isinstance(error, InvalidInput):
        return "refused"
    return "unverifiable" if isinstance(error, AccelbindError) else "failed"


def _code_of(error: AccelbindError) -> grpc.StatusCode:
    return next((code for kind, code in CODES if isinstance(error, kind)), OTHER_CODE)


def _listing(devices: Mapping[str, Device]) -> pb.ListAndWatchResponse:
    """The message with all devices, sorted: the same devices make the same message."""
    return pb.ListAndWatchResponse(devices=[_device(devices[key]) for key in sorted(devices)])


def _device(device: Device) -> pb.Device:
    message = pb.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
    if device.numa_node is not None:  # set but empty breaks the single-numa-node policy
        message.topology.nodes.add(ID=device.numa_node)
    return message


def _allocation(given: ContainerAllocation, root: str) -> pb.ContainerAllocateResponse:
    """The message with the allocation of one container; `root` is the host's, with its `dev/`."""
    return pb.ContainerAllocateResponse(
        envs=given.envs,
        devices=[
            pb.DeviceSpec(
                container_path=f"/dev/{node.name}",
                host_path=node.host_path(root),
                permissions=node.permissions,
            )
            for node in given.nodes
        ],
        cdi_devices=[pb.CDIDevice(name=name) for name in given.cdi_devices],
    )
