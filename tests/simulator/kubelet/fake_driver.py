"""A DRA driver of the tests' own, so that the stand-in is tested without the product."""
# ruff: noqa: N802, ARG002 - the protocol's names; what every method is handed

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import grpc.aio

from services.kubelet import dra_health_pb2 as health_pb
from services.kubelet import dra_pb2 as pb
from services.kubelet import pluginregistration_pb2 as registration_pb
from services.kubelet.dra_health_pb2_grpc import (
    DRAResourceHealthServicer,
    add_DRAResourceHealthServicer_to_server,
)
from services.kubelet.dra_pb2_grpc import DRAPluginServicer, add_DRAPluginServicer_to_server
from services.kubelet.pluginregistration_pb2_grpc import (
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from services.kubelet.sockets import listen

DRIVER = "accelbind.dev"
KIND = f"{DRIVER}/claim"


class FakeDriver(RegistrationServicer, DRAPluginServicer, DRAResourceHealthServicer):
    """Prepares every claim with one device, and records what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[str] = []
        self.error = ""
        self.healthy = True
        self._changed = asyncio.Event()
        self._server = grpc.aio.server()

    async def __aenter__(self) -> Self:
        registry = self.folder / "plugins_registry"
        hidden, self._socket = registry / ".driver", registry / "driver-reg.sock"
        for add in (
            add_RegistrationServicer_to_server,
            add_DRAPluginServicer_to_server,
            add_DRAResourceHealthServicer_to_server,
        ):
            add(self, self._server)
        self._endpoint = self.folder / "driver.sock"
        listen(self._server, self._endpoint)
        listen(self._server, hidden)
        await self._server.start()
        hidden.rename(self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End, and take the socket away."""
        self._socket.unlink(missing_ok=True)
        await self._server.stop(None)

    def describe(self, uid: str) -> None:
        """Write the CDI file of a claim."""
        folder = self.folder / "cdi"
        folder.mkdir(exist_ok=True)
        device = {"name": uid, "containerEdits": {"env": [f"CLAIM={uid}"]}}
        content = {"cdiVersion": "0.5.0", "kind": KIND, "devices": [device]}
        (folder / f"{uid}.json").write_text(json.dumps(content))

    def turn(self, *, healthy: bool) -> None:
        """Report another health."""
        self.healthy = healthy
        self._changed.set()

    async def GetInfo(self, request: object, context: object) -> registration_pb.PluginInfo:
        self.calls.append("GetInfo")
        return registration_pb.PluginInfo(
            type="DRAPlugin",
            name=DRIVER,
            endpoint=str(self._endpoint),
            supported_versions=["v1.DRAPlugin"],
        )

    async def NotifyRegistrationStatus(
        self, request: registration_pb.RegistrationStatus, context: object
    ) -> registration_pb.RegistrationStatusResponse:
        self.calls.append(f"registered {request.plugin_registered}")
        return registration_pb.RegistrationStatusResponse()

    async def NodePrepareResources(
        self, request: pb.NodePrepareResourcesRequest, context: object
    ) -> pb.NodePrepareResourcesResponse:
        self.calls.append("prepare")
        answers = {}
        for claim in request.claims:
            device = pb.Device(
                request_names=["fpga"],
                pool_name="n1",
                device_name="d0",
                cdi_device_ids=[f"{KIND}={claim.uid}"],
            )
            answers[claim.uid] = pb.NodePrepareResourceResponse(
                devices=[] if self.error else [device], error=self.error
            )
            if not self.error:
                self.describe(claim.uid)
        return pb.NodePrepareResourcesResponse(claims=answers)

    async def NodeUnprepareResources(
        self, request: pb.NodeUnprepareResourcesRequest, context: object
    ) -> pb.NodeUnprepareResourcesResponse:
        self.calls.append("unprepare")
        answer = pb.NodeUnprepareResourceResponse(error=self.error)
        return pb.NodeUnprepareResourcesResponse(
            claims={each.uid: answer for each in request.claims}
        )

    async def NodeWatchResources(
        self, request: object, context: object
    ) -> AsyncIterator[health_pb.NodeWatchResourcesResponse]:
        while True:
            self._changed.clear()
            device = health_pb.DeviceIdentifier(pool_name="n1", device_name="d0")
            health = health_pb.HEALTHY if self.healthy else health_pb.UNHEALTHY
            message = "" if self.healthy else "temperature 99 C"
            news = health_pb.DeviceHealth(device=device, health=health, message=message)
            yield health_pb.NodeWatchResourcesResponse(devices=[news])
            await self._changed.wait()
