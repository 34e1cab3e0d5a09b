"""A device plugin of the tests' own, so that the stand-in is tested without the product."""
# ruff: noqa: N802, ARG002 - the protocol's names; what every method is handed

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Self

import grpc
import grpc.aio

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet.deviceplugin_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from services.kubelet.sockets import (
    API_VERSION,
    dial,
    listen,
    plugins_folder,
    registration_socket,
)

RESOURCE = "fpga.intel.com/region-0123"
ENDPOINT = "fake.sock"


def devices(*ids: str, numa: int | None = None) -> list[pb.Device]:
    topology = None if numa is None else pb.TopologyInfo(nodes=[pb.NUMANode(ID=numa)])
    return [pb.Device(ID=each, health="Healthy", topology=topology) for each in ids]


class FakePlugin(DevicePluginServicer):
    """Lists the same devices until it is stopped, and records what it is asked."""

    def __init__(
        self,
        folder: Path,
        listed: list[pb.Device],
        *,
        resource: str = RESOURCE,
        pre_start: bool = False,
        preferred: bool = False,
    ) -> None:
        self.folder = folder
        self.resource = resource
        self.options = pb.DevicePluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=preferred
        )
        self.calls: list[str] = []
        self.preferred_requests: list[pb.ContainerPreferredAllocationRequest] = []
        self.allocated: list[tuple[str, ...]] = []
        self.pre_starts: list[tuple[str, ...]] = []
        self.allocate_refusal: tuple[grpc.StatusCode, str] | None = None
        self._listed = listed
        self._ended = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def serve(self) -> None:
        self._server = grpc.aio.server()
        add_DevicePluginServicer_to_server(self, self._server)
        listen(self._server, plugins_folder(self.folder) / ENDPOINT)
        await self._server.start()

    async def stop(self) -> None:
        self._ended.set()
        if self._server is not None:
            await self._server.stop(None)

    async def register(self) -> None:
        async with dial(registration_socket(self.folder)) as channel:
            request = pb.RegisterRequest(
                version=API_VERSION, endpoint=ENDPOINT, resource_name=self.resource
            )
            await RegistrationStub(channel).Register(request, timeout=60)
            self.calls.append("Registered")

    async def GetDevicePluginOptions(
        self, request: object, context: object
    ) -> pb.DevicePluginOptions:
        self.calls.append("GetDevicePluginOptions")
        return self.options

    async def ListAndWatch(
        self, request: object, context: object
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        self.calls.append("ListAndWatch")
        yield pb.ListAndWatchResponse(devices=self._listed)
        await self._ended.wait()

    async def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: object
    ) -> pb.PreferredAllocationResponse:
        self.calls.append("GetPreferredAllocation")
        self.preferred_requests += request.container_requests
        no_preference = pb.ContainerPreferredAllocationResponse()
        answers = [no_preference for _ in request.container_requests]
        return pb.PreferredAllocationResponse(container_responses=answers)

    async def Allocate(
        self,
        request: pb.AllocateRequest,
        context: grpc.aio.ServicerContext[pb.AllocateRequest, pb.AllocateResponse],
    ) -> pb.AllocateResponse:
        self.calls.append("Allocate")
        if self.allocate_refusal is not None:
            await context.abort(*self.allocate_refusal)
        self.allocated += [tuple(each.devices_ids) for each in request.container_requests]
        answers = [_usual(each.devices_ids) for each in request.container_requests]
        return pb.AllocateResponse(container_responses=answers)

    async def PreStartContainer(
        self,
        request: pb.PreStartContainerRequest,
        context: grpc.aio.ServicerContext[
            pb.PreStartContainerRequest, pb.PreStartContainerResponse
        ],
    ) -> pb.PreStartContainerResponse:
        self.calls.append("PreStartContainer")
        self.pre_starts.append(tuple(request.devices_ids))
        return pb.PreStartContainerResponse()


def _usual(ids: Sequence[str]) -> pb.ContainerAllocateResponse:
    nodes = [f"/dev/{each}" for each in ids]
    devices = [pb.DeviceSpec(container_path=n, host_path=n, permissions="rw") for n in nodes]
    return pb.ContainerAllocateResponse(envs={"DEVICES": ",".join(ids)}, devices=devices)


@contextlib.asynccontextmanager
async def registered(plugin: FakePlugin) -> AsyncIterator[FakePlugin]:
    async with plugin:
        await plugin.register()
        yield plugin
