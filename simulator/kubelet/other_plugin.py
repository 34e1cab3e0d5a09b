"""A device plugin of another vendor, with devices that are only names and paths."""
# ruff: noqa: N802, ARG002 - the protocol's names; what every method is handed

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Self

import grpc.aio

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet.deviceplugin_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from services.kubelet.sockets import API_VERSION, dial, listen, plugins_folder, registration_socket


class OtherPlugin(DevicePluginServicer):
    """Registers, and lists healthy devices until it ends; a container gets `/dev/ID` for each."""

    def __init__(
        self, folder: Path, ids: Sequence[str], *, resource: str, endpoint: str = "other.sock"
    ) -> None:
        self.folder = folder
        self.resource = resource
        self._endpoint = endpoint
        self._ids = ids
        self._ended = asyncio.Event()
        self._server = grpc.aio.server()

    async def __aenter__(self) -> Self:
        add_DevicePluginServicer_to_server(self, self._server)
        listen(self._server, plugins_folder(self.folder) / self._endpoint)
        await self._server.start()
        async with dial(registration_socket(self.folder)) as channel:
            request = pb.RegisterRequest(
                version=API_VERSION, endpoint=self._endpoint, resource_name=self.resource
            )
            await RegistrationStub(channel).Register(request, timeout=60)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        await self._server.stop(None)

    async def GetDevicePluginOptions(
        self, request: object, context: object
    ) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions()

    async def ListAndWatch(
        self, request: object, context: object
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        listed = [pb.Device(ID=each, health="Healthy") for each in self._ids]
        yield pb.ListAndWatchResponse(devices=listed)
        await self._ended.wait()

    async def Allocate(self, request: pb.AllocateRequest, context: object) -> pb.AllocateResponse:
        answer = pb.AllocateResponse()
        for wanted in request.container_requests:
            given = answer.container_responses.add()
            for each in sorted(wanted.devices_ids):
                path = f"/dev/{each}"
                given.devices.add(container_path=path, host_path=path, permissions="rw")
        return answer
