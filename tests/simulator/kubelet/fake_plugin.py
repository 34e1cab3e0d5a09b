"""A device plugin that is not the product's."""
# ruff: noqa: N802, ARG002 - the protocol's names; what every method is handed

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

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

ENDPOINT = "fake.sock"


def devices(*ids: str) -> list[pb.Device]:
    return [pb.Device(ID=each, health="Healthy") for each in ids]


class FakePlugin(DevicePluginServicer):
    """Lists the same devices until it is stopped, and gives a container nothing with them."""

    def __init__(self, folder: Path, listed: list[pb.Device], *, resource: str) -> None:
        self.folder = folder
        self.resource = resource
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

    async def GetDevicePluginOptions(
        self, request: object, context: object
    ) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions()

    async def ListAndWatch(
        self, request: object, context: object
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        yield pb.ListAndWatchResponse(devices=self._listed)
        await self._ended.wait()

    async def Allocate(self, request: pb.AllocateRequest, context: object) -> pb.AllocateResponse:
        answers = [pb.ContainerAllocateResponse() for _ in request.container_requests]
        return pb.AllocateResponse(container_responses=answers)

    async def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: object
    ) -> pb.PreferredAllocationResponse:
        return pb.PreferredAllocationResponse()

    async def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: object
    ) -> pb.PreStartContainerResponse:
        return pb.PreStartContainerResponse()
