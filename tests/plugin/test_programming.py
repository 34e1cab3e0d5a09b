"""Region mode where functions are programmed: kubelet and driver are stood in for."""

import asyncio
import threading
from functools import partialmethod

import pytest

from plugin.device_plugin import starts
from services.bitstreams.model import Bitstream
from services.bitstreams.storage import BitstreamStorage
from services.devices.model import PluginMode
from services.kube.events import EventRecord
from services.node import regions
from services.node.service import NodeService
from simulator.bitstreams import gbs_metadata, gbs_of
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from simulator.driver import DriverStandIn, raw_bitstream
from tests.plugin.support import REGION, Bed, install_file
from tests.support import eventually_async

pytestmark = pytest.mark.usefixtures("driver")

MODE = PluginMode.REGION


async def test_a_container_starts_once_every_port_of_its_region_has_its_function_and_is_reset(
    bed: Bed, driver: DriverStandIn
) -> None:
    """The container gets all ports, and its namespace may not map what is in the others."""
    bed.add_card(NLB3, NLB0)
    bed.record_ports()
    told: list[EventRecord] = []
    async with bed.running(MODE, events=told) as plugin:
        started = await bed.wants("p", NLB0)
        assert not started["c"].started
        assert "code = NotFound" in bed.said
        assert (
            f"no bitstream for AFU {NLB0} (interface {A10_INTERFACE}) in"
            f" {bed.folder / 'bitstreams'} on node n1 for dfl-port.0 of region dfl-fme.0; install"
            " it with: accelbind bitstream install FILE"
        ) in bed.said
        assert driver.done == []
        bed.install(NLB0)
        await bed.runs(started)
        assert [(each.what, each.port, each.afu_id) for each in driver.done] == [
            ("reset", "dfl-port.1", NLB0),
            ("programmed", "dfl-port.0", NLB0),
            ("reset", "dfl-port.0", NLB0),
        ]
        nodes = sorted(each.container_path for each in started["c"].granted.devices)
        assert nodes == ["/dev/dfl-port.0", "/dev/dfl-port.1"]
        sample = plugin.process.registry.get_sample_value
        assert sample("accelbind_programmings_total", {"outcome": "programmed"}) == 1
        labels = {"interface": A10_INTERFACE, "afu": NLB0}
        assert sample("accelbind_programming_seconds_sum", labels)
        await bed.offers(1, REGION)
    failed, *_, event = (each for each in told if each.object.kind == "Pod")
    assert (failed.reason, failed.warning) == ("ProgrammingFailed", True)
    assert "no bitstream for AFU" in failed.message
    about = event.object
    assert (about.namespace, about.name, about.uid) == ("ns", "p", "uid-of-p")
    assert (event.reason, event.warning) == ("Programmed", False)
    assert event.message == (
        f'container "c" of pod ns/p: AFU {NLB0} programmed into dfl-fme.0 (dfl-port.0)'
    )


# User clocks -------------------------------------------------------------------------------------


async def test_a_clock_below_what_a_function_asks_for_is_reported_at_each_start(bed: Bed) -> None:
    bed.add_card(NLB0)
    metadata = gbs_metadata(A10_INTERFACE, NLB3)
    metadata["afu-image"]["clock-frequency-low"] = 200  # simulated ports have 155.87 MHz
    install_file(bed.folder, "clock.gbs", gbs_of(metadata, raw_bitstream(NLB3)))
    events: list[EventRecord] = []
    for programming in ("prestart", "none"):
        async with bed.running(MODE, events=events, programming=programming):
            started = await bed.wants(programming, NLB3)
            assert started["c"].running
            await bed.kubelet.delete_pod(started)
    slow = [each for each in events if each.reason == "UserClockSlow"]
    assert [(each.object.name, each.warning) for each in slow] == [
        ("prestart", True),
        ("none", True),
    ]
    assert "asks for 400/200 MHz: it runs slower" in slow[0].message


# What is slow, or hangs --------------------------------------------------------------------------


async def test_a_card_that_hangs_is_unhealthy_and_holds_up_no_other(
    bed: Bed, driver: DriverStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partialmethod(NodeService.region_programming, work_seconds=1.0)
    monkeypatch.setattr(NodeService, "region_programming", impatient)
    bed.add_card(NLB3)
    bed.install(NLB0)
    async with bed.running(MODE):
        driver.go_on.clear()
        started = await bed.wants("p", NLB0)
        assert not started["c"].started
        assert "code = DeadlineExceeded" in bed.said
        await bed.offers(0, REGION)
        bed.add_card(NLB0)
        bed.record_ports()
        await bed.runs(await bed.wants("other", NLB0))
        driver.go_on.set()
        await bed.offers(2, REGION)
        await bed.runs(started)


async def test_a_start_without_the_time_left_says_so_and_the_work_goes_on(
    bed: Bed, driver: DriverStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.add_card(NLB3)
    bed.install(NLB0)
    up = "code = DeadlineExceeded desc = making ready dfl-fme.0 took longer than 0.5 s"
    async with bed.running(MODE):
        with monkeypatch.context() as patch:
            patch.setattr(starts, "CHECK_SECONDS", 0.5)
            driver.go_on.clear()
            started = await bed.wants("p", NLB0)
            await bed.kubelet.until(lambda: up in bed.said)
        assert bed.kubelet.allocatable.get(REGION) == 1  # slow is not hung
        driver.go_on.set()
        await bed.runs(started)
        assert len(driver.programmed) == 1


async def test_a_storage_that_hangs_holds_up_nobody_who_needs_no_bitstream(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        bed.add_card(NLB3)
    bed.record_ports()
    hangs, goes_on, load = threading.Event(), threading.Event(), BitstreamStorage.load

    def hanging(storage: BitstreamStorage, interface_id: str, function_id: str) -> Bitstream:
        hangs.set()
        goes_on.wait()
        return load(storage, interface_id, function_id)

    monkeypatch.setattr(BitstreamStorage, "load", hanging)
    bed.install(NLB0)
    async with bed.running(MODE):
        await bed.offers(2, REGION)
        first = asyncio.create_task(bed.wants("first", NLB0))
        await eventually_async(hangs.is_set)
        assert (await bed.wants("second", NLB3))["c"].running
        goes_on.set()
        await bed.runs(await first)


async def test_only_so_many_bitstreams_are_in_memory_at_once(
    bed: Bed, driver: DriverStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "BITSTREAM_MEMORY", 1)
    monkeypatch.setattr(starts, "CHECK_SECONDS", 600.0)
    for _ in range(2):
        bed.add_card(NLB3)
    bed.install(NLB0)
    async with bed.running(MODE):
        await bed.offers(2, REGION)
        driver.go_on.clear()
        first = asyncio.create_task(bed.wants("first", NLB0))
        await eventually_async(lambda: bool(driver.begun))
        with monkeypatch.context() as patch:
            patch.setattr(regions, "LOAD_SECONDS", 0.5)
            second = await bed.wants("second", NLB0)
            await bed.kubelet.until(lambda: "took all the memory for bitstreams" in bed.said)
        assert len(driver.begun) == 1
        driver.go_on.set()
        await bed.runs(await first)
        await bed.runs(second)
