"""Claims that the kubelet has forgotten: their devices aren't free, until nobody uses them."""

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from prometheus_client import generate_latest

from plugin.dra import leftover_claims
from plugin.dra.leftover_claims import UNUSED_SECONDS
from plugin.process import Plugin
from services.containers.cgroups import pods_with_cgroup
from services.devices.dra import DRIVER
from services.kubelet import podresources_pb2 as pb
from services.kubelet.podresources_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)
from services.kubelet.sockets import dra_checkpoint_file, listen, pod_resources_socket
from services.process.errors import HardwareError
from simulator.driver import DriverStandIn
from tests.plugin.dra.support import NEVER, Bed, claim, config, parts, result
from tests.support import eventually_async, holding

POD = "1c3a4e6f-8a64-4d0c-9f6a-5f0f3d8f2f11"
UID = "uid-of-first"


class Kubelet(PodResourcesListerServicer):
    """What a kubelet says of claims: its checkpoint, and PodResources; and its cgroups."""

    def __init__(self, bed: Bed) -> None:
        self.checkpoint = dra_checkpoint_file(bed.folder / "k")
        self.tree = bed.folder / "root/sys/fs/cgroup"
        self.socket = pod_resources_socket(bed.folder / "k")
        self.listed: tuple[str, ...] = ()
        """CDI names of devices of containers."""
        (self.tree / "kubepods.slice").mkdir(parents=True)
        self.knows()

    def knows(self, **pods: str) -> None:
        """Write the checkpoint: claims, and the pod of each."""
        entries = [
            {"ClaimUID": uid.replace("_", "-"), "PodUIDs": {pod: {}}, "DriverState": {DRIVER: {}}}
            for uid, pod in pods.items()
        ]
        data = json.dumps({"ClaimInfoStateList": entries})
        self.checkpoint.write_text(json.dumps({"Data": data, "Checksum": 0}))

    async def List(  # noqa: N802 - the protocol's name
        self,
        request: pb.ListPodResourcesRequest,  # noqa: ARG002 - the protocol's
        context: object,  # noqa: ARG002 - the same
    ) -> pb.ListPodResourcesResponse:
        devices = [pb.CDIDevice(name=each) for each in self.listed]
        resource = pb.DynamicResource(claim_resources=[pb.ClaimResource(cdi_devices=devices)])
        container = pb.ContainerResources(name="c", dynamic_resources=[resource])
        return pb.ListPodResourcesResponse(pod_resources=[pb.PodResources(containers=[container])])


@pytest.fixture
async def kubelet(bed: Bed) -> AsyncIterator[Kubelet]:
    kubelet, server = Kubelet(bed), grpc.aio.server()  # type: ignore[abstract]  # only List is served
    kubelet.socket.parent.mkdir(exist_ok=True)
    add_PodResourcesListerServicer_to_server(kubelet, server)
    listen(server, kubelet.socket)
    await server.start()
    yield kubelet
    await server.stop(None)


@pytest.fixture
def fpga(bed: Bed, driver: DriverStandIn) -> str:  # noqa: ARG001 - answers its ioctls
    return bed.add_fpga()


def first(fpga: str) -> dict[str, Any]:
    made = claim("first", result(fpga), configs=(config(NEVER),))
    made["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": POD}]
    return made


def taints(bed: Bed) -> list[str]:
    """The taints of the only device."""
    devices = bed.published.values()
    return [taint["value"] for each in devices for taint in each.get("taints", ())]


def events(bed: Bed) -> list[str]:
    return [each["message"] for each in bed.api.objects("Event")]


ROUND = UNUSED_SECONDS / 2


NOW = itertools.count(step=int(ROUND))


async def observed(dra: Plugin, seconds: float = UNUSED_SECONDS + ROUND) -> None:
    """Have leftover claims observed for so long."""
    for _ in range(int(seconds / ROUND) + 1):
        await parts(dra).leftover_claims.run_once(parts(dra).preparation, next(NOW))


async def test_a_claim_that_only_the_driver_knows_is_withheld_and_ends(
    bed: Bed, kubelet: Kubelet, fpga: str
) -> None:
    bed.api.put({"kind": "Namespace", "metadata": {"name": "default"}})
    async with bed.running(healthy_after=1) as dra:
        await bed.register()
        kubelet.knows(uid_of_first=POD)
        await bed.ready(first(fpga))
        await eventually_async(lambda: bed.api.objects("ResourceSlice"))
        assert taints(bed) == []
        kubelet.knows()  # its state is lost
        await eventually_async(lambda: taints(bed) == ["leftover-claim"])
        table = str((await dra.probes.devices())[1])
        assert "claim ns/first has it, and the kubelet does not know that claim" in table
        assert f"accelbind dra release {UID}" in table
        await eventually_async(lambda: any("ns/first has it" in each for each in events(bed)))
        assert 'reason="leftover-claim"' in generate_latest(dra.process.registry).decode()
        bed.api.drop("ResourceClaim", "first", "ns")
        await observed(dra, UNUSED_SECONDS - ROUND)
        assert parts(dra).book.find(UID) is not None
    async with bed.running(healthy_after=1) as dra:  # which begins anew
        await bed.register()
        await eventually_async(lambda: taints(bed) == ["leftover-claim"])
        await observed(dra, UNUSED_SECONDS - ROUND)
        assert parts(dra).book.find(UID) is not None
        await observed(dra)
        assert bed.left == []
        await eventually_async(lambda: taints(bed) == [])
        shown = generate_latest(dra.process.registry).decode()
        assert 'accelbind_claims_unprepared_total{outcome="leftover"} 1.0' in shown
        await eventually_async(lambda: any("is healthy again" in each for each in events(bed)))


async def test_a_claim_is_no_leftover_while_the_kubelet_knows_it_or_is_away(
    bed: Bed, kubelet: Kubelet, fpga: str
) -> None:
    kubelet.checkpoint.unlink()
    async with bed.running(healthy_after=1) as dra:
        await bed.ready(first(fpga))
        # It was never there, as where the kubelet's folder is not mounted.
        assert await parts(dra).leftover_claims.problems() == {}
        kubelet.knows(uid_of_first=POD)
        assert await parts(dra).leftover_claims.problems() == {}
        for content in ("", "no JSON"):
            kubelet.checkpoint.write_text(content)
            assert await parts(dra).leftover_claims.problems() == {}
        kubelet.checkpoint.unlink()  # one that was there, and is lost
        assert [each.code for each in (await parts(dra).leftover_claims.problems()).values()] == [
            "leftover-claim"
        ]
        kubelet.knows(uid_of_first=POD)
        assert await parts(dra).leftover_claims.problems() == {}
        await bed.unprepare(first(fpga))
        assert await parts(dra).leftover_claims.problems() == {}


@contextmanager
def cgroup(kubelet: Kubelet, path: str) -> Iterator[None]:
    folder = kubelet.tree / path
    folder.mkdir(parents=True)
    yield
    folder.rmdir()


WITH_CGROUP = {
    "cgroupfs driver": f"memory/kubepods/burstable/pod{POD}",
    "systemd driver": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
    "kubelet in a container": "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice",
}
AWAY = {"no cgroups": "tree", "no PodResources": "socket", "no checkpoint": "checkpoint"}
OTHERS = (
    "PodResources lists it",
    "the kubelet knows it again",
    "somebody has the port",
    "the API server has it",
    "the API server is away",
    "the API server refuses",
)


@asynccontextmanager
async def in_use(how: str, bed: Bed, kubelet: Kubelet, fpga: str) -> AsyncIterator[None]:
    """Have something keep a claim."""
    if how in WITH_CGROUP:
        with cgroup(kubelet, WITH_CGROUP[how].format(POD.replace("-", "_"))):
            yield
    elif how in AWAY:
        path, away = getattr(kubelet, AWAY[how]), bed.folder / "away"
        path.rename(away)
        yield
        away.rename(path)
    elif how == "somebody has the port":
        with holding(bed.folder / "root/dev/dfl-port.0"):
            yield
    elif how == "PodResources lists it":
        kubelet.listed = (f"accelbind.dev/claim={UID}-fpga-{fpga}",)
        yield
        kubelet.listed = ()
    elif how == "the kubelet knows it again":
        kubelet.knows(uid_of_first=POD)
        yield
        kubelet.knows()
    elif how == "the API server has it":
        bed.api.put(first(fpga))
        yield
        bed.api.drop("ResourceClaim", "first", "ns")
    elif how == "the API server is away":
        async with bed.api.away():
            yield
    else:
        with bed.api.faults.failing(403):
            yield


@pytest.mark.parametrize("how", [*WITH_CGROUP, *AWAY, *OTHERS])
async def test_a_leftover_claim_stays_while_it_may_be_used(
    bed: Bed, kubelet: Kubelet, fpga: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftover_claims, "OWN_ROOT", bed.folder / "container")
    async with bed.running() as dra:
        await bed.ready(first(fpga))
        bed.api.drop("ResourceClaim", "first", "ns")
        assert len(await parts(dra).leftover_claims.problems()) == 1
        await observed(dra, UNUSED_SECONDS - ROUND)
        async with in_use(how, bed, kubelet, fpga):
            await observed(dra)
            assert parts(dra).book.find(UID) is not None
        await parts(dra).leftover_claims.problems()
        await observed(dra, UNUSED_SECONDS - ROUND)
        assert parts(dra).book.find(UID) is not None, "the time begins anew"
        await observed(dra, 2 * UNUSED_SECONDS)
        assert bed.left == []


@pytest.mark.usefixtures("kubelet")
async def test_a_claim_of_another_uid_or_without_our_devices_is_none(bed: Bed, fpga: str) -> None:
    """A claim of a user outlives its pods."""
    for uid in ("another", UID):
        async with bed.running() as dra:
            await bed.ready(first(fpga))
            assert len(await parts(dra).leftover_claims.problems()) == 1
            left = claim("first", *[result(fpga)] * (uid != UID), uid=uid)
            bed.api.put(left)
            await observed(dra)
            assert bed.left == []


async def test_the_pods_of_a_claim_are_those_that_the_kubelet_names(
    bed: Bed, kubelet: Kubelet, fpga: str
) -> None:
    """Others begin to share it later, which the driver does not see."""
    made = claim("first", result(fpga), configs=(config(NEVER),))
    async with bed.running() as dra:
        await bed.ready(made)
        bed.api.drop("ResourceClaim", "first", "ns")
        assert len(await parts(dra).leftover_claims.problems()) == 1
        await observed(dra)
        before = parts(dra).book.find(UID)
        assert before is not None, "its pods are unknown"
        kubelet.knows(uid_of_first="other")
        await parts(dra).leftover_claims.problems()
        assert not await parts(dra).preparation.end_leftover(before), "it has changed meanwhile"
        entry = parts(dra).book.find(UID)
        assert entry is not None
        assert entry.pods == ("other",)
        kubelet.knows()
        await parts(dra).leftover_claims.problems()
        with cgroup(kubelet, "kubepods.slice/podother"):
            await observed(dra)
            assert parts(dra).book.find(UID) is not None
        await observed(dra, 2 * UNUSED_SECONDS)
        assert bed.left == []


def test_cgroups_that_show_no_pods_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "a/sys/fs/cgroup/system.slice").mkdir(parents=True)
    (tmp_path / "b/sys/fs/cgroup/kubepods/pod1").mkdir(parents=True)
    assert pods_with_cgroup([tmp_path / "a", tmp_path / "b"], ["1", "2"]) == {"1"}
    with pytest.raises(HardwareError, match="no cgroups of pods"):
        pods_with_cgroup([tmp_path / "a"], ["1"])
