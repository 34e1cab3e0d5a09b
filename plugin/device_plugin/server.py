"""The gRPC server of one resource with devices: answers the kubelet's calls."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Final

import grpc
import structlog

from plugin.device_plugin.metrics import PluginMetrics
from plugin.device_plugin.starts import Starts
from services.devices.allocation import ContainerAllocation, allocate, prefer
from services.devices.held import HELD
from services.devices.model import Device, DeviceNode
from services.kubelet import deviceplugin_pb2 as pb
from services.node.device_list import Context, Counted, DeviceListServer
from services.node.node_check import require_numbers
from services.process.errors import (
    AccelbindError,
    BitstreamMissing,
    DeviceHung,
    DeviceRefused,
    InvalidInput,
    NotAllowed,
    NotMapped,
    TooSlow,
)
from services.process.text import clip

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


class ResourceServer(DeviceListServer):
    """Serves one resource on one socket, whose path must be new.

    Without `starts` the kubelet doesn't ask before a start. `cdi` returns the ids of the devices
    to name by CDI; if they are `hooked`, an OCI hook programs them, and they are only named by CDI.
    """

    allocates = True

    def __init__(
        self,
        resource: str,
        devices: Mapping[str, Device],
        path: Path,
        *,
        device_root: str,
        starts: Starts | None,
        root: Path,
        metrics: PluginMetrics,
        counted: Counted,
        cdi: Callable[[], Collection[str]] = frozenset,
        hooked: bool = False,
    ) -> None:
        super().__init__(resource, devices, path, counted)
        self._device_root = device_root
        self._starts = starts
        self._root = root
        self._metrics = metrics
        self._cdi = cdi
        self._hooked = hooked

    @property
    def options(self) -> pb.DevicePluginOptions:
        """The calls that the kubelet makes before it starts a container or chooses devices."""
        return pb.DevicePluginOptions(
            pre_start_required=self._starts is not None, get_preferred_allocation_available=True
        )

    # The calls of the kubelet; the protocol defines their names.

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
        """Answer with nodes and variables of devices: one answer per container, in order."""
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
        # The kubelet chose it just before it heard of that. PreStartContainer comes too late: then
        # the kubelet's checkpoint says that the container has it rightly.
        chosen = (self._devices[each] for each in ids if each in self._devices)
        for problem in chain.from_iterable(each.reasons for each in chosen):
            if problem.code == HELD:
                raise NotAllowed(problem.text)
        return allocate(self._devices, ids, cdi=self._cdi(), hooked=self._hooked)

    async def PreStartContainer(  # noqa: N802
        self, request: pb.PreStartContainerRequest, context: Context
    ) -> pb.PreStartContainerResponse:
        """Decide whether a container may start."""
        ids = list(request.devices_ids)
        async with self._answering(context, "PreStartContainer", devices=ids):
            if self._starts is not None:
                try:
                    await self._starts.authorize_start(self.resource, ids)
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


def _outcome(error: Exception) -> str:
    if isinstance(error, InvalidInput):
        return "refused"
    return "unverifiable" if isinstance(error, AccelbindError) else "failed"


def _code_of(error: AccelbindError) -> grpc.StatusCode:
    return next((code for kind, code in CODES if isinstance(error, kind)), OTHER_CODE)


def _allocation(given: ContainerAllocation, root: str) -> pb.ContainerAllocateResponse:
    """The message with the allocation of one container; `root` is the host's, with its `dev/`."""
    return pb.ContainerAllocateResponse(
        envs=given.envs,
        devices=[
            pb.DeviceSpec(
                container_path=node.container_path,
                host_path=node.host_path(root),
                permissions=node.permissions,
            )
            for node in given.nodes
        ],
        cdi_devices=[pb.CDIDevice(name=name) for name in given.cdi_devices],
    )
