"""Mappings asked on the node, and what is remembered of the answers."""

import asyncio

import pytest

from plugin.device_plugin import starts
from services.devices.model import PluginMode
from services.kube.client import BadStatus, Unreadable
from services.mappings.index import EMPTY_INDEX
from services.process.errors import ClusterError
from simulator.cards import NLB0
from simulator.kubelet.pods import PodState
from tests.plugin.support import (
    AF,
    REGION,
    Bed,
    container,
    functions,
    mapping_both_functions,
    running,
    settings,
)

DEVEL = PluginMode.REGIONDEVEL
AWAY = ClusterError("the API server https://k can't be reached")


@pytest.fixture(autouse=True)
def card(bed: Bed) -> str:
    return bed.add_card(NLB0)


async def start(bed: Bed, resource: str) -> PodState:
    await bed.offers(1, resource)
    return await bed.start("p", container("c", resource, env=functions(NLB0)))


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("mode", "resource", "enforced", "mapping"),
    [
        (DEVEL, REGION, "auto", "FpgaRegion"),
        (PluginMode.REGION, REGION, "auto", "AcceleratorFunction of mode region"),
        (PluginMode.AF, AF, "always", "AcceleratorFunction of mode af"),
    ],
)
async def test_devices_are_for_namespaces_that_map_them(
    bed: Bed, mode: PluginMode, resource: str, enforced: str, mapping: str
) -> None:
    bed.install(NLB0)
    bed.pods.mapped = EMPTY_INDEX
    async with bed.running(mode, enforce_mappings=enforced):
        started = await start(bed, resource)
        assert not started["c"].started
        assert "code = PermissionDenied" in bed.said
        assert f"no {mapping} in namespace ns maps that: " in bed.said
        bed.pods.mapped = mapping_both_functions("af" if resource == AF else "region")
        await bed.runs(started)


async def test_without_an_api_server_auto_asks_nobody_and_always_refuses(bed: Bed) -> None:
    async with running(settings(bed.folder, mode=DEVEL)):
        started = await start(bed, REGION)
        assert started["c"].running
    await bed.kubelet.delete_pod(started)
    async with running(settings(bed.folder, mode=DEVEL, enforce_mappings="always")):
        assert not (await start(bed, REGION))["c"].started
        assert "this plugin has no access to the API server" in bed.said


# What was allowed before -------------------------------------------------------------------------


def answer(status: int) -> BadStatus:
    return BadStatus(f"the API server answers {status}", status)


async def test_approvals_count_only_while_the_api_server_does_not_answer(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bed.running(DEVEL):
        state = await start(bed, REGION)
        for error, allowed in (
            (AWAY, True),
            (answer(503), True),
            (answer(429), False),
            (answer(404), False),
            (Unreadable("the answer can't be read"), False),
        ):
            bed.pods.error = error
            await bed.kubelet.restart_container(state, "c")
            await bed.kubelet.settled(state)
            assert state["c"].running is allowed, error
            bed.pods.error = None
            await bed.runs(state)
        monkeypatch.setattr(starts, "API_SECONDS", 0.2)
        bed.pods.delay = asyncio.Event()
        await bed.restart(state)
        bed.add_card(NLB0)
        await bed.offers(2, REGION)
        assert not (await bed.wants("q", NLB0))["c"].started
        assert "the API server didn't say within 0.2 s" in bed.said
