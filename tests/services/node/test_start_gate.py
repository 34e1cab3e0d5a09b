"""Region mode where functions are only verified: what starts, what doesn't, what the events say."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from plugin.metrics import PluginMetrics
from plugin.settings import PluginSettings
from services.bitstreams.storage import BitstreamStorage
from services.containers import claims
from services.containers.approvals import ApprovalFile
from services.containers.claims import StartClaims
from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.kubelet.sockets import checkpoint_file
from services.node import start_gate
from services.node.regions import RegionProgramming
from services.node.start_gate import FunctionStartPolicy
from services.process.blocking import BlockingCalls
from services.process.errors import (
    ClusterError,
    HardwareError,
    KubeletError,
    NotAllowed,
    WorldError,
)
from services.programming.programmer import Programmer
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from simulator.kubelet.pods import PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import (
    NLB0,
    NLB3,
    REGION,
    Pods,
    container,
    functions,
    pod,
    running,
    settings,
)

pytestmark = pytest.mark.anyio


def verifying(folder: Path) -> PluginSettings:
    return settings(folder, PluginMode.REGION, programming="none")


async def start(kubelet: KubeletStandIn, pods: Pods, spec: dict[str, Any]) -> PodState:
    await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) >= 1)
    admitted = await kubelet.admit(pods.add(spec))
    return await kubelet.settled(admitted)


def said(kubelet: KubeletStandIn) -> str:
    return "\n".join(event.message for event in kubelet.events)


async def test_a_container_waits_until_its_region_carries_what_it_wants(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    """Every port counts: the container gets all, and its namespace may not map the others."""
    card = rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3, NLB0)))
    pods = Pods()
    async with running(verifying(short_dir), pods):
        admitted = await start(kubelet, pods, pod("p", container("c", REGION, 1, functions(NLB0))))
        assert not admitted["c"].started
        assert (
            f"on node n1 dfl-port.0 of region dfl-fme.0 carries AFU {NLB3} instead of AFU {NLB0}:"
            ' container "c" of pod ns/p would get every port of its regions, and this plugin'
            " verifies functions and doesn't program them: program the region with accelbind fpga"
            " program, or ask for a function that it carries"
        ) in said(kubelet)
        assert "code = FailedPrecondition" in said(kubelet)
        rack.set_afu(card, NLB0)
        await kubelet.until(lambda: admitted["c"].running)
        assert sorted(each.container_path for each in admitted["c"].granted.devices) == [
            "/dev/dfl-port.0",
            "/dev/dfl-port.1",
        ]
        rack.set_afu(card, NLB3, port=1)
        await kubelet.restart_container(admitted, "c")
        assert not admitted["c"].running
        rack.set_afu(card, NLB0, port=1)
        await kubelet.until(lambda: admitted["c"].running)
        rack.break_(card, Fault.AFU_EMPTY)
        await kubelet.restart_container(admitted, "c")
        assert not admitted["c"].running
        assert "carries an unknown function (afu_id of dfl-port.0 is empty)" in said(kubelet)


async def test_an_init_container_and_the_app_container_that_has_its_device(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="opae", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(verifying(short_dir), pods):
        init = container("init", REGION, 1, functions(NLB0))
        same = pod("same", container("c", REGION, 1, functions(NLB0)), init=[init])
        admitted = await start(kubelet, pods, same)
        assert admitted["c"].running
        await kubelet.delete_pod(admitted)
        other = pod("other", container("c", REGION, 1, functions(NLB3)), init=[init])
        admitted = await start(kubelet, pods, other)
        assert not admitted["init"].started
        assert "share their devices but want different functions" in said(kubelet)


async def test_a_pod_in_which_only_an_init_container_has_devices_needs_its_log_folder(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    """PodResources leaves out plain init containers."""
    rack.add_card(CardSpec(driver="opae", afu_ids=(NLB0,)))
    pods, logs = Pods(), short_dir / "logs"
    values = {"programming": "none", "pod_logs_dir": logs}
    async with running(settings(short_dir, PluginMode.REGION, **values), pods):
        init = container("init", REGION, 1, functions(NLB0))
        app = container("c", "example.com/none", 0)
        admitted = await start(kubelet, pods, pod("p", app, init=[init]))
        assert not admitted["init"].started
        assert "mount the host's /var/log/pods at --pod-logs-dir" in said(kubelet)
        logs.symlink_to(short_dir / "k/pod-logs")
        await kubelet.until(lambda: admitted["c"].running)


async def test_a_function_that_comes_from_a_configmap_does_not_count(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods, spec = Pods(), pod("p", container("c", REGION))
    spec["spec"]["containers"][0]["env"] = [
        {"name": "FPGA_REGION_1", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
    ]
    async with running(verifying(short_dir), pods):
        assert not (await start(kubelet, pods, spec))["c"].started
    assert "FPGA_REGION_1 has no plain value" in said(kubelet)


# The gate by itself, where a kubelet would be in the way ------------------------------------------

UID = "uid-of-p"


class Setting:
    """A gate with its files and its API server."""

    def __init__(self, folder: Path) -> None:
        self.kubelet_dir = folder / "k"
        self.checkpoint = checkpoint_file(self.kubelet_dir)
        self.checkpoint.parent.mkdir(parents=True)
        self.entries: list[dict[str, Any]] = []
        self.logs = folder / "logs"
        self.rack = Rack(folder / "root")
        self.pods = Pods()
        self.calls = BlockingCalls()
        self.state = folder / "state"
        (self.logs / f"ns_p_{UID}").mkdir(parents=True)
        self.card = self.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
        self.pods.add(pod("p", container("c", REGION, 1, functions(NLB0))))
        self.hold("dfl-fme.0")

    def hold(self, *ids: str, names: tuple[str, ...] = ("c",)) -> None:
        self.entries = []
        self.write(UID, *ids, names=names)

    def write(self, uid: str, *ids: str, names: tuple[str, ...] = ("c",)) -> None:
        """Adds a pod's containers to the checkpoint."""
        self.entries += [
            {
                "PodUID": uid,
                "ContainerName": name,
                "ResourceName": REGION,
                "DeviceIDs": {"0": ids},
            }
            for name in names
        ]
        self.checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": self.entries}}))

    def gate(self) -> FunctionStartPolicy:
        """The gate, as a plugin that has just been started has it."""
        known = StartClaims(
            PluginMode.REGION,
            kubelet_dir=self.kubelet_dir,
            pod_logs_dir=self.logs,
            node="n1",
            pods=self.pods,
            enforced=False,
            approvals=ApprovalFile(self.state / "approvals.json", self.calls),
            calls=self.calls,
        )
        regions = RegionProgramming(
            programmer=Programmer(self.rack.root, self.state),
            storage=BitstreamStorage(self.state),
            calls=self.calls,
            scan=lambda: scan(self.rack.root),
            node="n1",
            metrics=PluginMetrics(CollectorRegistry()),
            on_done=lambda: None,
        )
        return FunctionStartPolicy(known, regions)

    async def check(self) -> None:
        await self.gate().authorize_start(REGION, ["dfl-fme.0"])


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


async def test_the_gate_opens_where_everything_fits(setting: Setting) -> None:
    await setting.check()
    setting.rack.remove_card(setting.card)
    with pytest.raises(WorldError, match=r"region dfl-fme\.0 is gone"):
        await setting.check()


async def test_a_refusal_stays_short_enough_for_an_event(setting: Setting) -> None:
    ids = ["dfl-fme.0"]
    for number in range(1, 24):
        setting.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
        ids.append(f"dfl-fme.{number}")
    setting.hold(*ids)
    with pytest.raises(NotAllowed, match="and 15 more: container") as raised:
        await setting.gate().authorize_start(REGION, ids)
    assert len(str(raised.value)) < 2000


async def test_a_pod_is_asked_for_once_for_all_of_its_containers_that_may_be_starting(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting.pods.add(
        pod(
            "p",
            container("c", REGION, 1, functions(NLB0)),
            init=[container("first", REGION, 1, functions(NLB0))],
        )
    )
    setting.hold("dfl-fme.0", names=("c", "first"))
    asked, get_pod = [], setting.pods.get_pod

    async def counted(namespace: str, name: str) -> bytes | None:
        asked.append(name)
        return await get_pod(namespace, name)

    monkeypatch.setattr(setting.pods, "get_pod", counted)
    await setting.check()
    assert asked == ["p"]


async def test_an_approval_given_while_another_start_asks_the_api_server_is_kept(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other start has read the checkpoint before this pod was there."""
    gate, asked = setting.gate(), asyncio.Event()
    setting.pods.delay = asyncio.Event()
    get_pod = setting.pods.get_pod

    async def noted(namespace: str, name: str) -> bytes | None:
        asked.set()
        return await get_pod(namespace, name)

    monkeypatch.setattr(setting.pods, "get_pod", noted)
    slow = asyncio.create_task(gate.authorize_start(REGION, ["dfl-fme.0"]))
    await asked.wait()
    setting.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    later = setting.pods.add(pod("later", container("c", REGION, 1, functions(NLB0))))
    (setting.logs / f"ns_later_{later['metadata']['uid']}").mkdir()
    setting.write(later["metadata"]["uid"], "dfl-fme.1")
    delay, setting.pods.delay = setting.pods.delay, None
    await gate.authorize_start(REGION, ["dfl-fme.1"])
    delay.set()
    await slow
    setting.pods.error = ClusterError("the API server https://k can't be reached")
    await setting.gate().authorize_start(
        REGION, ["dfl-fme.1"]
    )  # as a plugin that was restarted would
    await setting.gate().authorize_start(REGION, ["dfl-fme.0"])


async def test_devices_that_the_checkpoint_does_not_have_are_refused(setting: Setting) -> None:
    setting.hold("dfl-fme.0", "dfl-fme.1")
    with pytest.raises(NotAllowed, match=r"has no container that holds dfl-fme\.0"):
        await setting.check()


@pytest.mark.parametrize("folder", ["missing", "unreadable"])
async def test_a_pod_that_neither_log_folders_nor_podresources_name_is_refused(
    setting: Setting, folder: str
) -> None:
    (setting.logs / f"ns_p_{UID}").rmdir()
    setting.logs.rmdir()
    if folder == "unreadable":
        setting.logs.touch()
    with pytest.raises(KubeletError, match="the pod of the starting container is unknown") as info:
        await setting.check()
    assert ("--pod-logs-dir" in str(info.value)) == (folder == "unreadable")


async def test_a_check_that_takes_too_long_is_given_up(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_gate, "CHECK_SECONDS", 0.05)
    setting.pods.delay = asyncio.Event()
    with pytest.raises(WorldError, match=r"of dfl-fme\.0 took longer than 0\.05 s"):
        await setting.check()


async def test_an_api_server_that_is_slow_is_as_one_that_is_away(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "API_SECONDS", 0.2)
    setting.pods.delay = asyncio.Event()
    with pytest.raises(ClusterError, match="the API server didn't say"):
        await setting.check()
    gate = setting.gate()
    monkeypatch.setattr(claims, "API_SECONDS", 30.0)
    setting.pods.delay = None
    await gate.authorize_start(REGION, ["dfl-fme.0"])
    monkeypatch.setattr(claims, "API_SECONDS", 0.2)
    setting.pods.delay = asyncio.Event()
    await gate.authorize_start(REGION, ["dfl-fme.0"])


async def test_files_that_hang_are_given_up(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(claims, "FILES_SECONDS", 0.05)
    monkeypatch.setattr(claims, "read_checkpoint", lambda _path: release.wait(30))
    with pytest.raises(HardwareError, match=r"reading .*checkpoint hangs"):
        await setting.check()
    release.set()


async def test_a_time_out_of_the_pods_source_is_its_own(setting: Setting) -> None:
    setting.pods.error = TimeoutError("its own")
    with pytest.raises(TimeoutError, match="its own"):
        await setting.check()
