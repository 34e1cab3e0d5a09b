"""ResourceClaims of pods on a node: DRA drivers prepare them, and a file says what they gave.

Not modelled: the health of devices, the deletion of slices whose driver is away, several drivers
of one name. Claims come allocated: the API server stand-in's scheduler does not know them.
"""

import asyncio
import contextlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc.aio
import httpx2
import structlog

from services.kube.client import ClusterClient
from services.kubelet import dra_pb2 as pb
from services.kubelet import pluginregistration_pb2 as registration_pb
from services.kubelet.dra_pb2_grpc import DRAPluginStub
from services.kubelet.pluginregistration_pb2_grpc import RegistrationStub
from services.kubelet.sockets import Identity, dial, dra_checkpoint_file, identify
from services.process.errors import ClusterError, KubeletError
from services.process.files import replace_file
from simulator.kubelet.pods import ContainerSpec, PodSpec
from simulator.kubelet.registration import PluginFailed, go_text

LOG = structlog.get_logger()

CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}"
SCAN_SECONDS: Final = 0.5
REGISTRATION_SECONDS: Final = 5.0
CALL_SECONDS: Final = 45.0


class PrepareFailed(KubeletError):
    """A pod's claims are not ready."""


@dataclass(slots=True)
class Held:
    """A claim of pods on this node."""

    uid: str
    namespace: str
    name: str
    drivers: tuple[str, ...]
    pods: set[str] = field(default_factory=set)
    devices: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """By driver, as in the checkpoint."""
    prepared: bool = False

    def message(self) -> pb.Claim:
        return pb.Claim(namespace=self.namespace, uid=self.uid, name=self.name)

    def entry(self) -> dict[str, Any]:
        drivers = {driver: {"Devices": found} for driver, found in self.devices.items()}
        names = {"ClaimUID": self.uid, "ClaimName": self.name, "Namespace": self.namespace}
        return names | {"PodUIDs": {each: {} for each in self.pods}, "DriverState": drivers}


class ClaimManager:
    """The claims of one node, over all lives of its kubelet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._registry = folder / "plugins_registry"
        self._client: ClusterClient | None = None
        self._claims: dict[str, Held] = {}
        self._sockets: dict[Path, Identity | None] = {}
        """Registration sockets that drivers were registered at."""
        self._drivers: dict[str, Path] = {}
        """The sockets of drivers, by name."""
        self._scanning: asyncio.Task[None] | None = None

    def connect(self, client: ClusterClient) -> None:
        """Read claims from an API server."""
        self._client = client

    # Drivers

    def start(self) -> None:
        """Begin a life, in which each claim is prepared once more before a pod starts with it."""
        self._registry.mkdir(mode=0o750, parents=True, exist_ok=True)
        for held in self._claims.values():
            held.prepared = False
        self._scanning = asyncio.create_task(self._scan_forever())

    async def stop(self) -> None:
        """End a life; calls to drivers fail."""
        if self._scanning is not None:
            self._scanning.cancel()
            await asyncio.gather(self._scanning, return_exceptions=True)
        self._sockets.clear()
        self._drivers.clear()

    async def _scan_forever(self) -> None:
        while True:
            for path in sorted(self._registry.iterdir()):
                identity = identify(path)
                if path.is_socket() and identity != self._sockets.get(path):
                    with contextlib.suppress(grpc.aio.AioRpcError):  # it is tried again
                        await self._register(path)
                        self._sockets[path] = identity
            await asyncio.sleep(SCAN_SECONDS)

    async def _register(self, path: Path) -> None:
        seconds = REGISTRATION_SECONDS
        async with dial(path) as channel:
            stub = RegistrationStub(channel)
            info = await stub.GetInfo(registration_pb.InfoRequest(), timeout=seconds)
            status = registration_pb.RegistrationStatus(plugin_registered=True)
            await stub.NotifyRegistrationStatus(status, timeout=seconds)
        self._drivers[info.name] = Path(info.endpoint)
        LOG.info("driver registered", driver=info.name)

    def _socket(self, driver: str) -> Path:
        if driver not in self._drivers:
            raise PluginFailed(f"DRA driver {driver} is not registered")
        return self._drivers[driver]

    def _save(self) -> None:
        # The checkpoint is JSON whose `Data` is JSON again. The stand-in does not read it.
        head = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1"}
        entries = [each.entry() for each in self._claims.values()]
        data = json.dumps(head | {"ClaimInfoStateList": entries})
        content = {"Data": data, "Checksum": zlib.crc32(data.encode())}
        replace_file(dra_checkpoint_file(self._folder), json.dumps(content).encode(), mode=0o600)

    # Prepare

    async def prepare(self, pod: PodSpec) -> None:
        """Have a pod's claims prepared (PrepareFailed if any is not ready)."""
        try:
            held = [await self._read(pod, name) for name in pod.claims]
            self._save()
            for driver in dict.fromkeys(name for each in held for name in each.drivers):
                due = [each for each in held if driver in each.drivers and not each.prepared]
                if due:
                    await self._prepare(driver, due)
        except (ClusterError, PluginFailed) as error:
            raise PrepareFailed(f"prepare dynamic resources: {error}") from error
        for each in held:
            each.prepared = True
        self._save()

    async def _read(self, pod: PodSpec, name: str) -> Held:
        """A claim, which from now on is unprepared at the pod's end."""
        if self._client is None:
            raise PluginFailed("the stand-in has no API server")
        path = CLAIMS.format(pod.namespace, name)
        answer = await self._client.request("GET", path)
        if answer.status == httpx2.codes.NOT_FOUND:
            raise PluginFailed(f'resourceclaims.resource.k8s.io "{name}" not found')
        claim: dict[str, Any] = json.loads(self._client.expect(answer, f"GET {path}").body)
        results = claim["status"]["allocation"]["devices"]["results"]
        drivers = tuple(dict.fromkeys(each["driver"] for each in results))
        uid = claim["metadata"]["uid"]
        held = self._claims.setdefault(uid, Held(uid, pod.namespace, name, drivers))
        held.pods.add(pod.uid)
        return held

    async def _prepare(self, driver: str, claims: Sequence[Held]) -> None:
        request = pb.NodePrepareResourcesRequest(claims=[each.message() for each in claims])
        try:
            async with dial(self._socket(driver)) as channel:
                stub = DRAPluginStub(channel)
                answer = await stub.NodePrepareResources(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise PluginFailed(go_text(error.code(), error.details() or "")) from error
        for held in claims:
            result = answer.claims[held.uid]
            if result.error:
                raise PluginFailed(
                    f"NodePrepareResources failed for ResourceClaim {held.name}: {result.error}"
                )
            held.devices[driver] = [_device(each) for each in result.devices]

    async def unprepare(self, pod_uid: str) -> None:
        """Take a pod off its claims, and have those unprepared that no other pod uses.

        PluginFailed if a driver can't or doesn't: the pod stays, and this is to be repeated.
        """
        mine = [each for each in self._claims.values() if pod_uid in each.pods]
        for held in (each for each in mine if each.pods == {pod_uid}):
            request = pb.NodeUnprepareResourcesRequest(claims=[held.message()])
            for driver in held.drivers:
                try:
                    async with dial(self._socket(driver)) as channel:
                        stub = DRAPluginStub(channel)
                        answer = await stub.NodeUnprepareResources(request, timeout=CALL_SECONDS)
                except grpc.aio.AioRpcError as error:
                    raise PluginFailed(go_text(error.code(), error.details() or "")) from error
                if problem := answer.claims[held.uid].error:
                    raise PluginFailed(f"unprepare {held.name}: {problem}")
            self._claims.pop(held.uid)
        for held in mine:
            held.pods.discard(pod_uid)
        if mine:
            self._save()

    def cdi_devices(self, pod: PodSpec, container: ContainerSpec) -> list[str]:
        """The CDI devices of the requests that a container uses."""
        return [
            cdi_device
            for use in container.claims
            for held in self._claims.values()
            if (held.namespace, held.name) == (pod.namespace, use.claim)
            for devices in held.devices.values()
            for device in devices
            if not use.request or use.request in device["RequestNames"]
            for cdi_device in device["CDIDeviceIDs"]
        ]


def _device(device: pb.Device) -> Mapping[str, Any]:
    return {
        "PoolName": device.pool_name,
        "DeviceName": device.device_name,
        "ShareID": device.share_id or None,
        "RequestNames": [*device.request_names],
        "CDIDeviceIDs": [*device.cdi_device_ids],
    }
