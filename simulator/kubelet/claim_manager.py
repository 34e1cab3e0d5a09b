"""The kubelet's claim manager: what a pod's ResourceClaims need before and after it runs.

The rules are those of `pkg/kubelet/cm/dra/manager.go`.
"""

import asyncio
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import structlog

from services.kube.client import ClusterClient
from services.kubelet import dra_pb2 as pb
from services.kubelet.sockets import dra_checkpoint_file
from services.process.errors import ClusterError, KubeletError
from services.process.files import replace_file
from services.process.retry import Backoff
from simulator.kubelet.dra_plugins import DraPlugins, Endpoint
from simulator.kubelet.pods import ContainerSpec, Journal, PodSpec
from simulator.kubelet.registration import PluginFailed

LOG = structlog.get_logger()

CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"


class PrepareFailed(KubeletError):
    """A pod's claims are not ready."""


@dataclass(slots=True)
class Held:
    """A claim of pods on this node."""

    uid: str
    namespace: str
    name: str
    pods: set[str] = field(default_factory=set)
    devices: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By driver, as in the checkpoint; a claim that is prepared again has them twice."""
    prepared: bool = False

    def message(self) -> pb.Claim:
        return pb.Claim(namespace=self.namespace, uid=self.uid, name=self.name)

    def entry(self) -> dict[str, Any]:
        drivers = {driver: {"Devices": found} for driver, found in self.devices.items()}
        names = {"ClaimUID": self.uid, "ClaimName": self.name, "Namespace": self.namespace}
        return names | {"PodUIDs": {each: {} for each in self.pods}, "DriverState": drivers}


class ClaimManager:
    """The claims of one node, over all lives of its kubelet."""

    def __init__(self, folder: Path, node_name: str, journal: Journal) -> None:
        self.plugins: DraPlugins | None = None
        """None while the kubelet is stopped."""
        self._folder = folder
        self._node = node_name
        self._journal = journal
        self._client: ClusterClient | None = None
        self._claims: dict[str, Held] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # Life

    def start(self) -> None:
        """Begin a life: look for drivers, wipe the node's slices."""
        # A claim is prepared once in a life, whatever its containers do; a restart forgets it.
        for held in self._claims.values():
            held.prepared = False
        self.plugins = DraPlugins(self._folder, self._journal, self._wipe)
        self._tasks = [asyncio.create_task(self.plugins.run())]
        if self._client is not None:
            self._tasks.append(asyncio.create_task(self._wipe_all()))

    async def stop(self) -> None:
        """End a life; calls to drivers fail."""
        self.plugins = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def connect(self, client: ClusterClient) -> None:
        """Use an API server, where this life has not wiped the slices yet."""
        self._client = client
        if self.plugins is not None:
            self._tasks.append(asyncio.create_task(self._wipe_all()))

    async def _wipe_all(self) -> None:
        """Delete all slices of the node, of all drivers, as a kubelet does at its start."""
        backoff = Backoff(1, 300)
        while True:
            try:
                await self._wipe()
            except KubeletError as error:
                LOG.warning("slices not deleted", reason=str(error))
                await asyncio.sleep(backoff.pause())
            else:
                return

    async def _wipe(self, driver: str = "") -> None:
        selector = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        if self._client is None:
            return
        try:
            answer = await self._client.request(
                "DELETE", SLICES, params={"fieldSelector": selector}
            )
            self._client.expect(answer, f"DELETE {SLICES}")
        except ClusterError as error:
            raise KubeletError(str(error)) from error

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
        # All are checked before the first call, one for each driver; no driver is rolled back.
        try:
            claims = [await self._read(pod, name) for name in pod.claims]
            held = [self._hold(pod, claim) for claim in claims]
            self._save()
            for driver in dict.fromkeys(name for each in held for name in each.devices):
                due = [each for each in held if driver in each.devices and not each.prepared]
                if due:
                    await self._prepare(driver, due)
        except (ClusterError, PluginFailed) as error:
            raise PrepareFailed(f"prepare dynamic resources: {error}") from error
        for each in held:
            each.prepared = True
        self._save()

    def _hold(self, pod: PodSpec, claim: Mapping[str, Any]) -> Held:
        """Note a claim and its drivers: from now on it is unprepared at the pod's end."""
        uid, name = claim["metadata"]["uid"], claim["metadata"]["name"]
        held = self._claims.setdefault(uid, Held(uid, pod.namespace, name))
        held.pods.add(pod.uid)
        for result in claim["status"]["allocation"]["devices"]["results"]:
            held.devices.setdefault(result["driver"], [])
        return held

    async def _read(self, pod: PodSpec, name: str) -> dict[str, Any]:
        if not name:
            raise PluginFailed("ResourceClaim not created yet")
        if self._client is None:
            raise PluginFailed("the stand-in has no API server")
        path = CLAIMS.format(pod.namespace, name)
        answer = await self._client.request("GET", path)
        if answer.status == httpx2.codes.NOT_FOUND:
            raise PluginFailed(f'resourceclaims.resource.k8s.io "{name}" not found')
        claim: dict[str, Any] = json.loads(self._client.expect(answer, f"GET {path}").body)
        status = claim.get("status") or {}
        if pod.uid not in {each["uid"] for each in status.get("reservedFor") or ()}:
            raise PluginFailed(f"pod {pod.name} is not allowed to use ResourceClaim {name}")
        for result in status["allocation"]["devices"]["results"]:
            self._endpoint(result["driver"])
        uid = claim["metadata"]["uid"]
        if old := [each.uid for each in self._of(pod.namespace, name) if each.uid != uid]:
            raise PluginFailed(f"old ResourceClaim with UID {old[0]} still exists")
        return claim

    async def _prepare(self, driver: str, claims: Sequence[Held]) -> None:
        answer = await self._endpoint(driver).prepare([each.message() for each in claims])
        for held in claims:
            result = answer.claims[held.uid]
            if result.error:
                raise PluginFailed(
                    f"NodePrepareResources failed for ResourceClaim {held.name}: {result.error}"
                )
            held.devices.setdefault(driver, []).extend(map(_device, result.devices))

    def _endpoint(self, driver: str) -> Endpoint:
        found = self.plugins.find(driver) if self.plugins is not None else None
        if found is None:
            raise PluginFailed(f"DRA driver {driver} is not registered")
        return found

    # Unprepare

    async def unprepare(self, pod_uid: str) -> None:
        """Take a pod off its claims, and have those unprepared that no other pod uses.

        PluginFailed if a driver can't or doesn't: the pod stays, and this is to be repeated.
        """
        # Whether or not they still exist, or their preparation succeeded.
        mine = [each for each in self._claims.values() if pod_uid in each.pods]
        last = [each for each in mine if each.pods == {pod_uid}]
        calls: dict[str, list[Held]] = {}
        for held in last:
            for driver in held.devices:
                calls.setdefault(driver, []).append(held)
        for driver, claims in calls.items():
            answer = await self._endpoint(driver).unprepare([each.message() for each in claims])
            for held in claims:
                if problem := answer.claims[held.uid].error:
                    raise PluginFailed(f"unprepare {held.name}: {problem}")
        for held in mine:
            held.pods.discard(pod_uid)
            if not held.pods:
                self._claims.pop(held.uid, None)
        if mine:
            self._save()

    # What containers get

    def _of(self, namespace: str, name: str) -> list[Held]:
        key = (namespace, name)
        return [each for each in self._claims.values() if (each.namespace, each.name) == key]

    def _devices(
        self, pod: PodSpec, claim: str, request: str
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The prepared devices of a request, or of all, with their drivers."""
        for held in self._of(pod.namespace, claim):
            for driver, devices in held.devices.items():
                for device in devices:
                    names = device["RequestNames"]
                    if not request or not names or request in names:
                        yield driver, device

    def cdi_devices(self, pod: PodSpec, container: ContainerSpec) -> list[str]:
        return [
            each
            for use in container.claims
            for _, device in self._devices(pod, use.claim, use.request)
            for each in device["CDIDeviceIDs"] or ()
        ]

    def statuses(self, pod: PodSpec, container: ContainerSpec) -> list[dict[str, Any]]:
        """The `allocatedResourcesStatus` of a container: of claims that it names, no others."""
        uses = [each for each in container.claims if each.label and not container.init]
        found = []
        for use in uses:
            devices = self._devices(pod, use.claim, use.request)
            resources = [self._health(driver, device) for driver, device in devices]
            if resources:
                found.append({"name": use.label, "resources": resources})
        return found

    def _health(self, driver: str, device: Mapping[str, Any]) -> dict[str, Any]:
        health, text = "Unknown", ""
        if self.plugins is not None:
            health, text = self.plugins.health(driver, device["PoolName"], device["DeviceName"])
        status = {"resourceID": next(iter(device["CDIDeviceIDs"]), ""), "health": health}
        return status | ({"message": text} if text else {})


def _device(device: pb.Device) -> dict[str, Any]:
    return {
        "PoolName": device.pool_name,
        "DeviceName": device.device_name,
        "ShareID": device.share_id or None,
        "RequestNames": [*device.request_names],
        "CDIDeviceIDs": [*device.cdi_device_ids],
    }
