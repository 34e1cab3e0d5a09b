"""Mappings asked on the node, and what is remembered of the answers."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from services.devices.model import PluginMode
from services.kube.client import BadStatus, Unreadable
from services.mappings.index import EMPTY_INDEX
from services.process.errors import ClusterError
from simulator.cards import NLB0, CardSpec, Rack
from simulator.kubelet.pods import PodState
from tests.plugin.support import (
    AF,
    REGION,
    Bed,
    container,
    functions,
    mapping_both_functions,
    pod,
    running,
    settings,
)

pytestmark = pytest.mark.anyio

DEVEL = PluginMode.REGIONDEVEL
AWAY = ClusterError("the API server https://k can't be reached")


@pytest.fixture(autouse=True)
def card(rack: Rack) -> str:
    return rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))


async def start(bed: Bed, resource: str) -> PodState:
    await bed.offers(1, resource)
    return await bed.start("p", container("c", resource))


@pytest.mark.parametrize(
    ("mode", "values", "text"),
    [
        (DEVEL, {}, "no FpgaRegion in namespace ns maps"),
        (
            PluginMode.AF,
            {"enforce_mappings": "always"},
            "no AcceleratorFunction of mode af in namespace ns maps",
        ),
    ],
)
async def test_devices_are_for_namespaces_that_map_them(
    bed: Bed, mode: PluginMode, values: dict[str, Any], text: str
) -> None:
    resource = REGION if mode is DEVEL else AF
    bed.pods.mapped = EMPTY_INDEX
    async with bed.running(mode, **values):
        started = await start(bed, resource)
        assert not started["c"].started
        assert "code = PermissionDenied" in bed.said
        assert (
            f'container "c" of pod ns/p was given {resource}, and {text} that: request a'
            " name that is mapped, or ask an administrator for a mapping"
        ) in bed.said
        bed.pods.mapped = mapping_both_functions("af")
        await bed.runs(started)


async def test_without_an_api_server_auto_asks_nobody_and_always_refuses(bed: Bed) -> None:
    async with running(settings(bed.folder, DEVEL)):
        started = await start(bed, REGION)
        assert started["c"].running
    await bed.kubelet.delete_pod(started)
    async with running(settings(bed.folder, DEVEL, enforce_mappings="always")):
        assert not (await start(bed, REGION))["c"].started
        assert "this plugin has no access to the API server" in bed.said


def another_uid(spec: dict[str, Any]) -> None:
    spec["metadata"]["uid"] = "uid-of-its-successor"


def another_node(spec: dict[str, Any]) -> None:
    spec["spec"]["nodeName"] = "n2"


async def test_a_log_folder_alone_says_nothing_of_a_pods_namespace(bed: Bed) -> None:
    """Whoever can make a folder in /var/log/pods could name a namespace that maps everything."""
    changes: list[tuple[Callable[[dict[str, Any]], None] | None, str]] = [
        (None, "the API server has no pod ns/p0"),
        (another_uid, "pod ns/p1 has been replaced"),
        (another_node, 'has pod ns/p2 on node "n2", and this is "n1"'),
    ]
    async with bed.running(DEVEL):
        for number, (change, text) in enumerate(changes):
            await bed.offers(1, REGION)
            spec = pod(f"p{number}", container("c", REGION))
            if change is not None:
                change(bed.pods.add(copy.deepcopy(spec)))
            started = await bed.kubelet.settled(await bed.kubelet.admit(spec))
            assert not started["c"].started
            assert text in bed.said
            bed.pods.add(spec)
            await bed.runs(started)
            await bed.kubelet.delete_pod(started)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("mode", [DEVEL, PluginMode.REGION])
async def test_a_static_pod_starts_as_its_mirror_pod_says(bed: Bed, mode: PluginMode) -> None:
    bed.install(NLB0)
    spec = pod("p", container("c", REGION, env=functions(NLB0)))
    mirror = bed.pods.add(copy.deepcopy(spec))
    static_uid = spec["metadata"]["uid"]
    mirror["metadata"] |= {
        "uid": "uid-of-the-mirror-pod",
        "annotations": {"kubernetes.io/config.hash": static_uid},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1"}],
    }
    async with bed.running(mode):
        await bed.offers(1, REGION)
        await bed.runs(await bed.kubelet.admit(spec))


# What was allowed before -------------------------------------------------------------------------


def answer(status: int) -> BadStatus:
    return BadStatus(f"the API server answers {status}", status)


async def test_what_was_allowed_counts_only_without_an_answer(bed: Bed) -> None:
    async with bed.running(DEVEL):
        state = await start(bed, REGION)
        for error, starts in (
            (AWAY, True),
            (answer(503), True),
            (answer(429), False),
            (answer(404), False),
            (Unreadable("the answer can't be read"), False),
        ):
            bed.pods.error = error
            await bed.kubelet.restart_container(state, "c")
            await bed.kubelet.settled(state)
            assert state["c"].running is starts, error
            bed.pods.error = None
            await bed.runs(state)


async def test_a_container_that_was_refused_does_not_start_in_the_next_outage(bed: Bed) -> None:
    async with bed.running(DEVEL):
        state = await start(bed, REGION)
        await bed.runs(state)
        bed.pods.mapped = EMPTY_INDEX
        await bed.kubelet.restart_container(state, "c")
        await bed.kubelet.until(lambda: "code = PermissionDenied" in bed.said)
        bed.pods.error = AWAY
        await bed.kubelet.until(lambda: "code = Unavailable" in bed.said)
        assert not state["c"].running
        bed.pods.error, bed.pods.mapped = None, mapping_both_functions()
        await bed.runs(state)
