"""Region mode where functions are only verified: what starts, what doesn't, what the events say."""

import asyncio

import pytest

from plugin.device_plugin import starts
from services.devices.model import PluginMode
from simulator.card_faults import Fault
from simulator.cards import NLB0, NLB3, CardSpec
from tests.plugin.support import REGION, Bed, container, functions


async def test_a_container_waits_until_its_region_carries_what_it_wants(bed: Bed) -> None:
    """Every port counts: the container gets all, and its namespace may not map the others."""
    card = bed.add_card(NLB3, NLB0)
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


async def test_a_refusal_stays_short_enough_for_an_event(bed: Bed) -> None:
    for afu in (NLB0, *[NLB3] * 23):
        bed.add_card(afu)
    bed.record_ports()
    async with bed.running(PluginMode.REGION, programming="none"):
        await bed.wants("p", *[NLB0] * 24)
        (event,) = {each.message for each in bed.kubelet.events}
        assert "and 15 more: container" in event
        assert len(event) < 2000


async def test_an_api_server_that_is_slow_is_as_one_that_is_away(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        bed.add_card(NLB0)
    bed.record_ports()
    async with bed.running(PluginMode.REGION, programming="none"):
        allowed = await bed.wants("p", NLB0)
        await bed.runs(allowed)
        monkeypatch.setattr(starts, "API_SECONDS", 0.2)
        bed.pods.delay = asyncio.Event()
        await bed.restart(allowed)
        assert not (await bed.wants("q", NLB0))["c"].started
        assert "the API server didn't say within 0.2 s" in bed.said
