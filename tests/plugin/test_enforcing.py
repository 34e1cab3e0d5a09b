"""Mappings asked on the node, and what is remembered of the answers."""

import copy
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from services.containers.approval_file import ApprovalFile
from services.containers.approvals import StartApproval
from services.containers.identity import ContainerIdentity
from services.devices.model import PluginMode
from services.mappings.index import EMPTY_INDEX
from services.process.blocking import BlockingCalls
from services.process.errors import ClusterError
from simulator.cards import CardSpec, Rack
from simulator.kubelet.pods import PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import (
    AF,
    NLB0,
    REGION,
    Pods,
    container,
    functions,
    mapping_both_functions,
    pod,
    running,
    settings,
)

pytestmark = pytest.mark.anyio


async def start(kubelet: KubeletStandIn, pods: Pods, resource: str, name: str = "p") -> PodState:
    spec: dict[str, Any] = pods.add(pod(name, container("c", resource)))
    await kubelet.until(lambda: kubelet.allocatable.get(resource, 0) >= 1)
    return await kubelet.settled(await kubelet.admit(spec))


def said(kubelet: KubeletStandIn) -> str:
    return "\n".join(event.message for event in kubelet.events)


async def test_in_mode_regiondevel_a_region_is_for_namespaces_that_map_it(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    pods.mapped = EMPTY_INDEX
    async with running(settings(short_dir, PluginMode.REGIONDEVEL), pods):
        admitted = await start(kubelet, pods, REGION)
        assert not admitted["c"].started
        assert "code = PermissionDenied" in said(kubelet)
        assert (
            f'container "c" of pod ns/p was given {REGION}, and no FpgaRegion in namespace ns maps'
            " that: create one, or ask for a name that is mapped"
        ) in said(kubelet)
        pods.mapped = mapping_both_functions()
        await kubelet.until(lambda: admitted["c"].running)


def another_uid(spec: dict[str, Any]) -> None:
    spec["metadata"]["uid"] = "uid-of-its-successor"


def another_node(spec: dict[str, Any]) -> None:
    spec["spec"]["nodeName"] = "n2"


def described(folder: Path) -> dict[str, list[str]]:
    """The device nodes of each qualified name in the CDI file."""
    file = json.loads((folder / "accelbind-fpga.json").read_bytes())
    return {
        f"{file['kind']}={each['name']}": [
            node["path"] for node in each["containerEdits"]["deviceNodes"]
        ]
        for each in file["devices"]
    }


UNCONFIRMED = [
    (None, "the API server has no pod ns/p"),
    (another_uid, "pod ns/p has been replaced"),
    (another_node, 'has pod ns/p on node "n2", and this is "n1"'),
]


@pytest.mark.parametrize("mode", [PluginMode.AF, PluginMode.REGIONDEVEL])
@pytest.mark.parametrize("case", UNCONFIRMED)
async def test_a_log_folder_alone_says_nothing_of_a_pods_namespace(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    mode: PluginMode,
    case: tuple[Callable[[dict[str, Any]], None] | None, str],
) -> None:
    """Whoever can make a folder in /var/log/pods could name a namespace that maps everything."""
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    resource, (change, text) = AF if mode is PluginMode.AF else REGION, case
    pods = Pods()
    pods.mapped = mapping_both_functions("af" if mode is PluginMode.AF else "region")
    spec = pod("p", container("c", resource))
    if change is not None:
        known = pods.add(copy.deepcopy(spec))
        change(known)
    values = {"enforce_mappings": "always", "pod_logs_dir": short_dir / "k/pod-logs"}
    async with running(settings(short_dir, mode, **values), pods):
        await kubelet.until(lambda: kubelet.allocatable.get(resource, 0) >= 1)
        admitted = await kubelet.settled(await kubelet.admit(spec))
        assert not admitted["c"].started
        assert text in said(kubelet)
        pods.add(spec)
        await kubelet.until(lambda: admitted["c"].running)


@pytest.mark.parametrize(
    "asked",
    [
        {"mode": PluginMode.AF},
        {"mode": PluginMode.AF, "enforce_mappings": "never"},
        {"mode": PluginMode.REGIONDEVEL, "enforce_mappings": "never"},
    ],
)
async def test_where_mappings_are_not_asked_anything_starts(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, asked: dict[str, Any]
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    pods.mapped = EMPTY_INDEX
    resource = AF if asked["mode"] is PluginMode.AF else REGION
    async with running(settings(short_dir, **asked), pods):
        assert (await start(kubelet, pods, resource))["c"].running


async def test_in_mode_af_mappings_are_asked_if_always(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(settings(short_dir, PluginMode.AF, enforce_mappings="always"), pods):
        admitted = await start(kubelet, pods, AF)
        assert not admitted["c"].started
        assert "no AcceleratorFunction of mode af in namespace ns maps that" in said(kubelet)
        pods.mapped = mapping_both_functions("af")
        await kubelet.until(lambda: admitted["c"].running)


async def test_while_the_api_server_is_away_a_container_that_was_allowed_starts_again(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGIONDEVEL), pods):
        admitted = await start(kubelet, pods, REGION)
        pods.error = ClusterError("the API server https://k can't be reached")
        await kubelet.restart_container(admitted, "c")
        await kubelet.until(lambda: admitted["c"].running)


async def test_what_was_allowed_in_another_mode_says_nothing_of_functions(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGIONDEVEL), pods):
        admitted = await start(kubelet, pods, REGION)
    pods.error = ClusterError("the API server https://k can't be reached")
    async with running(settings(short_dir, PluginMode.REGION), pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) >= 1)
        await kubelet.restart_container(admitted, "c")
        await kubelet.until(lambda: "code = Unavailable" in said(kubelet))
        assert "was allowed to start here when this node had another mode" in said(kubelet)
        assert not admitted["c"].running


async def test_what_was_allowed_for_functions_says_nothing_of_the_power_to_program(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods, cdi = Pods(), {"cdi": True, "cdi_dir": short_dir / "cdi"}
    async with running(settings(short_dir, PluginMode.REGION, programming="none", **cdi), pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) >= 1)
        spec = pods.add(pod("p", container("c", REGION, 1, functions(NLB0))))
        admitted = await kubelet.settled(await kubelet.admit(spec))
        await kubelet.until(lambda: admitted["c"].running)
        (granted,) = admitted["c"].granted.cdi_devices
        assert granted in described(short_dir / "cdi")
    pods.error = ClusterError("the API server https://k can't be reached")
    async with running(settings(short_dir, PluginMode.REGIONDEVEL, **cdi), pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) >= 1)
        await kubelet.restart_container(admitted, "c")
        assert not admitted["c"].running
        assert "code = Unavailable" in said(kubelet)
        assert "was allowed to start here when this node had another mode" in said(kubelet)
        assert "/dev/dfl-fme.0" in itertools.chain(*described(short_dir / "cdi").values())
        assert granted not in described(short_dir / "cdi")


async def test_where_nothing_says_how_to_reach_an_api_server_auto_asks_nobody(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    async with running(settings(short_dir, PluginMode.REGIONDEVEL)):
        assert (await start(kubelet, Pods(), REGION))["c"].running


async def test_where_nothing_says_how_to_reach_an_api_server_always_refuses(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    async with running(settings(short_dir, PluginMode.REGIONDEVEL, enforce_mappings="always")):
        assert not (await start(kubelet, Pods(), REGION))["c"].started
        assert "this plugin has no access to the API server" in said(kubelet)


# The file of approvals ----------------------------------------------------------------------------

ALLOWED = StartApproval("uid", "c", REGION, ("dfl-fme.0",), "who", (NLB0,))


async def found(path: Path) -> StartApproval | None:
    file = ApprovalFile(path, BlockingCalls())
    return await file.find(ContainerIdentity("uid", "c"), REGION, ["dfl-fme.0"])


async def test_approvals_outlive_the_process_and_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "approvals.json"
    await ApprovalFile(path, BlockingCalls()).add([ALLOWED], gone=())
    assert path.stat().st_mode & 0o777 == 0o600
    assert await found(path) == ALLOWED


async def test_approvals_of_pods_that_are_gone_go(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    file = ApprovalFile(path, BlockingCalls())
    await file.add([ALLOWED], gone=())
    await file.add([], gone={"uid"})
    assert await found(path) is None


@pytest.mark.parametrize("content", [b"", b"[{}]", b"\xff"])
async def test_a_file_that_is_broken_counts_for_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "approvals.json"
    path.write_bytes(content)
    path.chmod(0o600)
    assert await found(path) is None


async def test_a_file_that_others_may_write_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    await ApprovalFile(path, BlockingCalls()).add([ALLOWED], gone=())
    path.chmod(0o622)
    assert await found(path) is None


async def test_a_file_that_can_not_be_written_is_said_once_and_approvals_last_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(b"")
    file = ApprovalFile(tmp_path / "file" / "approvals.json", BlockingCalls())
    other = StartApproval("uid", "d", REGION, ("dfl-fme.1",), "who")
    with structlog.testing.capture_logs() as logs:
        await file.add([ALLOWED], gone=())
        await file.add([other], gone=())
    assert await file.find(ContainerIdentity("uid", "c"), REGION, ["dfl-fme.0"]) == ALLOWED
    written = [each for each in logs if "can't be written" in each["reason"]]
    assert len(written) == 1
    assert "--state-dir" in written[0]["do"]
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - names are all that is needed
