"""Region mode where functions are only verified: what starts, what doesn't, what the events say."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from services.bitstreams.storage import BitstreamStorage
from services.containers import claims
from services.containers.approvals import Approvals
from services.containers.claims import StartClaims
from services.devices.hardware.scan import Scanner
from services.devices.model import PluginMode
from services.kubelet import checkpoint
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.sockets import checkpoint_file
from services.node.metrics import NodeMetrics
from services.node.regions import RegionProgramming
from services.node.start_gate import RegionStartPolicy
from services.process.blocking import BlockingCalls
from services.process.errors import ClusterError, HardwareError, NotAllowed
from services.programming.programmer import Programmer
from simulator.card_faults import Fault
from simulator.cards import NLB0, NLB3, CardSpec, Rack
from tests.plugin.support import REGION, Bed, Pods, container, functions, pod
from tests.recorded import record_ports

pytestmark = pytest.mark.anyio


async def test_a_container_waits_until_its_region_carries_what_it_wants(bed: Bed) -> None:
    """Every port counts: the container gets all, and its namespace may not map the others."""
    card = bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3, NLB0)))
    bed.record_ports()
    async with bed.running(PluginMode.REGION, programming="none"):
        started = await bed.wants("p", NLB0)
        assert not started["c"].started
        assert (
            f"on node n1 dfl-port.0 of region dfl-fme.0 carries AFU {NLB3} instead of AFU {NLB0}:"
            ' container "c" of pod ns/p would get every port of its regions, and this plugin'
            " verifies functions and doesn't program them: program the region with accelbind fpga"
            " program, or ask for a function that it carries"
        ) in bed.said
        assert "code = FailedPrecondition" in bed.said
        bed.rack.set_afu(card, NLB0)
        bed.record_ports()
        await bed.runs(started)
        assert len(started["c"].granted.devices) == 2
        await bed.restart(started)
        bed.rack.break_(card, Fault.AFU_EMPTY)
        await bed.kubelet.restart_container(started, "c")
        assert not started["c"].running
        assert "carries an unknown function (the content of dfl-port.0 is unknown" in bed.said


async def test_a_container_starts_once_its_pods_log_folder_is_mounted(bed: Bed) -> None:
    bed.rack.add_card(CardSpec(driver="opae", afu_ids=(NLB0,)))
    bed.record_ports()
    logs = bed.folder / "logs"
    async with bed.running(PluginMode.REGION, programming="none", pod_logs_dir=logs):
        await bed.offers(1, REGION)
        init = container("init", REGION, 1, functions(NLB0))
        started = await bed.start("p", container("c", "example.com/none", 0), init=[init])
        assert not started["init"].started
        assert "mount the host's /var/log/pods and name it with --pod-logs-dir" in bed.said
        logs.symlink_to(bed.folder / "k/pod-logs")
        await bed.runs(started)


# The gate by itself, where a kubelet would be in the way ------------------------------------------

UID = "uid-of-p"


class Setting:
    """A gate with its files and its API server."""

    def __init__(self, folder: Path) -> None:
        self.kubelet_dir = folder / "k"
        self.checkpoint = checkpoint_file(self.kubelet_dir)
        self.checkpoint.parent.mkdir(parents=True)
        self.logs = folder / "logs"
        self.rack = Rack(folder / "root")
        self.pods = Pods()
        self.calls, self.seconds = BlockingCalls(), 10.0
        self.state = folder / "state"
        (self.logs / f"ns_p_{UID}").mkdir(parents=True)
        self.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
        record_ports(self.rack.root, self.state)
        self.pods.add(pod("p", container("c", REGION, 1, functions(NLB0))))
        self.hold("dfl-fme.0")

    def hold(self, *ids: str, names: tuple[str, ...] = ("c",)) -> None:
        entries = [
            {
                "PodUID": UID,
                "ContainerName": name,
                "ResourceName": REGION,
                "DeviceIDs": {"0": ids},
            }
            for name in names
        ]
        self.checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))

    def gate(self) -> RegionStartPolicy:
        """The gate, as a plugin that has just been started has it."""
        known = StartClaims(
            PluginMode.REGION,
            files=KubeletFiles(self.kubelet_dir, self.logs, self.calls, seconds=self.seconds),
            node="n1",
            pods=self.pods,
            enforced=False,
            approvals=Approvals(),
        )
        regions = RegionProgramming(
            programmer=Programmer(self.rack.root, self.state),
            storage=BitstreamStorage(self.state),
            calls=self.calls,
            scan=Scanner(self.rack.root, self.calls).scan,
            node="n1",
            metrics=NodeMetrics(CollectorRegistry()),
            on_done=lambda: None,
        )
        return RegionStartPolicy(known, regions, programs=False, record_event=lambda _: None)

    async def check(self) -> None:
        await self.gate().authorize_start(REGION, ["dfl-fme.0"])


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


async def test_a_refusal_stays_short_enough_for_an_event(setting: Setting) -> None:
    ids = ["dfl-fme.0"]
    for number in range(1, 24):
        setting.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
        ids.append(f"dfl-fme.{number}")
    record_ports(setting.rack.root, setting.state)
    setting.hold(*ids)
    with pytest.raises(NotAllowed, match="and 15 more: container") as raised:
        await setting.gate().authorize_start(REGION, ids)
    assert len(str(raised.value)) < 2000


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
    setting.seconds = 0.05
    monkeypatch.setattr(checkpoint, "read_checkpoint", lambda _path: release.wait(30))
    with pytest.raises(HardwareError, match=r"reading .*checkpoint hangs"):
        await setting.check()
    release.set()
