"""Region mode where functions are only verified: what starts, what doesn't, what the events say."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugin.settings import PluginSettings
from services.containers import claims
from services.containers.approval_file import ApprovalFile
from services.containers.claims import StartClaims
from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.devices.resources import AdvertisedResources, advertise
from services.kubelet.sockets import checkpoint_file
from services.node import start_gate
from services.node.start_gate import FunctionStartPolicy, RegionsNow
from services.process.blocking import BlockingCalls
from services.process.errors import (
    ClusterError,
    HardwareError,
    InvalidName,
    KubeletError,
    NotAllowed,
    WorldError,
)
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


async def start(
    kubelet: KubeletStandIn, pods: Pods, spec: dict[str, Any], *, count: int = 1
) -> PodState:
    await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) >= count)
    admitted = await kubelet.admit(pods.add(spec))
    return await kubelet.settled(admitted)


def runs(admitted: PodState, name: str) -> bool:
    return admitted[name].running


def said(kubelet: KubeletStandIn) -> str:
    return "\n".join(event.message for event in kubelet.events)


async def test_a_container_starts_on_the_function_it_wants(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(verifying(short_dir), pods) as plugin:
        admitted = await start(kubelet, pods, pod("p", container("c", REGION, 1, functions(NLB0))))
        assert runs(admitted, "c")
        assert [each.container_path for each in admitted["c"].granted.devices] == [
            "/dev/dfl-port.0"
        ]
        assert plugin.metrics._prestart.labels("allowed")._value.get() == 1


async def test_a_container_that_wants_another_function_waits_until_it_is_there(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    card = rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    pods = Pods()
    async with running(verifying(short_dir), pods):
        admitted = await start(kubelet, pods, pod("p", container("c", REGION, 1, functions(NLB0))))
        assert not runs(admitted, "c")
        assert (
            f'on node n1 region dfl-fme.0 carries AFU {NLB3}, but container "c" of pod ns/p wants'
            f" AFU {NLB0}; this plugin verifies functions and doesn't program them: program the"
            " region with accelbind fpga program, or ask for a function that it carries"
        ) in said(kubelet)
        assert "code = FailedPrecondition" in said(kubelet)
        rack.set_afu(card, NLB0)
        await kubelet.until(lambda: admitted["c"].running)


async def test_a_region_whose_other_port_carries_another_function_waits_until_it_does_not(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    """The container would get both ports, and its namespace may not map the other function."""
    card = rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0, NLB3)))
    pods = Pods()
    async with running(verifying(short_dir), pods):
        admitted = await start(kubelet, pods, pod("p", container("c", REGION, 1, functions(NLB0))))
        assert not admitted["c"].started
        assert (
            f"on node n1 region dfl-fme.0 has port dfl-port.1 with AFU {NLB3}, and the container"
            f' would get every port of it, but container "c" of pod ns/p wants AFU {NLB0}'
        ) in said(kubelet)
        rack.set_afu(card, NLB0, port=1)
        await kubelet.until(lambda: admitted["c"].running)


async def test_a_restarted_container_is_verified_again(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    card = rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(verifying(short_dir), pods):
        admitted = await start(kubelet, pods, pod("p", container("c", REGION, 1, functions(NLB0))))
        assert runs(admitted, "c")
        rack.set_afu(card, NLB3)
        await kubelet.restart_container(admitted, "c")
        assert not runs(admitted, "c")
        rack.set_afu(card, NLB0)
        await kubelet.until(lambda: admitted["c"].running)


async def test_an_init_container_and_the_app_container_that_has_its_device(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="opae", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(verifying(short_dir), pods):
        init = container("init", REGION, 1, functions(NLB0))
        same = pod("same", container("c", REGION, 1, functions(NLB0)), init=[init])
        admitted = await start(kubelet, pods, same)
        assert runs(admitted, "c")
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


async def test_two_regions_with_two_functions_in_any_order(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="opae", afu_ids=(NLB0,)))
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    pods = Pods()
    async with running(verifying(short_dir), pods):
        wants = pod("p", container("c", REGION, 2, functions(NLB3, NLB0)))
        assert (await start(kubelet, pods, wants, count=2))["c"].running


def forged_image(_pods: Pods) -> dict[str, Any]:
    return pod("p", container("c", REGION))


def forged_configmap(_pods: Pods) -> dict[str, Any]:
    spec = pod("p", container("c", REGION))
    spec["spec"]["containers"][0]["env"] = [
        {"name": "FPGA_REGION_1", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
    ]
    return spec


def elsewhere(_pods: Pods) -> dict[str, Any]:
    spec = pod("p", container("c", REGION, 1, functions(NLB0)))
    spec["spec"]["nodeName"] = "n2"
    return spec


def away(pods: Pods) -> dict[str, Any]:
    pods.error = ClusterError("the API server https://k can't be reached")
    return pod("p", container("c", REGION, 1, functions(NLB0)))


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (forged_image, "FailedPrecondition desc = container .* names no function for it"),
        (forged_configmap, "FailedPrecondition desc = .*FPGA_REGION_1 has no plain value"),
        (elsewhere, "FailedPrecondition desc = .*; if that is one node, set --node-name"),
        (away, "Unavailable desc = the API server https://k can't be reached"),
    ],
)
async def test_what_can_not_be_verified_does_not_start(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    prepare: Callable[[Pods], dict[str, Any]],
    text: str,
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(verifying(short_dir), pods):
        admitted = await start(kubelet, pods, prepare(pods))
        assert not admitted["c"].started
    assert_matches(text, said(kubelet))


def assert_matches(pattern: str, text: str) -> None:
    with pytest.raises(AssertionError, match=pattern):
        raise AssertionError(text)


async def test_without_the_api_server_nothing_starts_and_the_event_says_what_to_set(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    async with running(verifying(short_dir)):
        spec = pod("p", container("c", REGION, 1, functions(NLB0)))
        admitted = await start(kubelet, Pods(), spec)
        assert not admitted["c"].started
    assert_matches("FailedPrecondition.*set --kubeconfig or KUBECONFIG", said(kubelet))


async def test_a_function_that_can_not_be_read_does_not_start(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    card = rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(verifying(short_dir), pods):
        admitted = await start(kubelet, pods, pod("p", container("c", REGION, 1, functions(NLB0))))
        assert runs(admitted, "c")
        rack.break_(card, Fault.AFU_EMPTY)
        await kubelet.restart_container(admitted, "c")
        assert not runs(admitted, "c")
        assert "carries an unknown function (afu_id of dfl-port.0 is empty)" in said(kubelet)


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
        self.tree: Callable[[], AdvertisedResources] = lambda: advertise(
            scan(self.rack.root), PluginMode.REGION
        )
        (self.logs / f"ns_p_{UID}").mkdir(parents=True)
        self.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
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
        async def fresh(_seconds: float) -> RegionsNow:
            return RegionsNow(self.tree().resources)

        known = StartClaims(
            kubelet_dir=self.kubelet_dir,
            pod_logs_dir=self.logs,
            node="n1",
            pods=self.pods,
            enforced=False,
            approvals=ApprovalFile(self.rack.root / "approvals.json", self.calls),
            calls=self.calls,
        )
        return FunctionStartPolicy(known, node="n1", read_regions=fresh)

    async def check(self) -> None:
        await self.gate().authorize_start(REGION, ["dfl-fme.0"])


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


async def test_the_gate_opens_where_everything_fits(setting: Setting) -> None:
    await setting.check()
    setting.tree = lambda: advertise(scan(setting.rack.root / "nothing"), PluginMode.REGION)
    with pytest.raises(NotAllowed, match=r"region dfl-fme\.0 is not there any more"):
        await setting.check()


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


async def test_a_pod_that_was_deleted_is_refused(setting: Setting) -> None:
    setting.pods.pods.clear()
    with pytest.raises(NotAllowed, match="has no pod ns/p"):
        await setting.check()


async def test_a_resource_that_is_no_region_is_refused(setting: Setting) -> None:
    af = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
    with pytest.raises(InvalidName, match="is not a region"):
        await setting.gate().authorize_start(af, ["dfl-port.0"])


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
