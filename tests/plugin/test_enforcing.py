"""Mappings asked on the node, and what is remembered of the answers."""

import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.devices.model import PluginMode
from services.mappings.index import EMPTY_INDEX
from services.process.errors import ClusterError
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from simulator.kubelet.states import PodState
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
