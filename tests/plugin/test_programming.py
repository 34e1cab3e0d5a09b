"""Region mode where functions are programmed: kubelet and driver are stood in for."""

import asyncio
import gzip
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin.process import Plugin
from services.bitstreams.model import Bitstream
from services.bitstreams.storage import BitstreamStorage, read_bitstream
from services.devices.model import PluginMode
from services.kube.events import EventRecord
from services.kubelet.sockets import plugins_folder
from services.mappings.index import EMPTY_INDEX
from services.node import regions, start_gate
from services.node.offer_memory import last_mode
from services.process.errors import ClusterError
from services.programming.image import Image
from services.programming.programmer import Programmer
from simulator.bitstreams import aocx_of, make_aocx, make_gbs
from simulator.cards import A10_INTERFACE, CardSpec, Rack
from simulator.driver import DriverStandIn, SimulatedCalls, raw_bitstream
from simulator.kubelet.pods import PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import (
    NLB0,
    NLB3,
    REGION,
    Pods,
    container,
    functions,
    mapping_both_functions,
    pod,
    running,
    settings,
)
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

OPENCL_AFU = "18b79ffa2ee54aa096ef4230dafacb5f"
PROGRAM = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def driver(rack: Rack) -> Iterator[DriverStandIn]:
    with DriverStandIn(rack.root) as driver:
        yield driver


@pytest.fixture
def storage(short_dir: Path) -> BitstreamStorage:
    return BitstreamStorage(short_dir / "bitstreams")


def install(storage: BitstreamStorage, *afus: str, carrying: str = "") -> None:
    """Installs synthetic bitstreams; `carrying` is what is in them whatever they say."""
    for afu in afus:
        source = storage.folder.parent / "new.gbs"
        source.write_bytes(make_gbs(A10_INTERFACE, afu, raw_bitstream(carrying or afu)))
        storage.install(source, force=True)


async def start(
    kubelet: KubeletStandIn, pods: Pods, spec: dict[str, Any], *, count: int = 1
) -> PodState:
    await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) >= count)
    return await kubelet.settled(await kubelet.admit(pods.add(spec)))


def wants(name: str, *afus: str) -> dict[str, Any]:
    return pod(name, container("c", REGION, len(afus), functions(*afus)))


def said(kubelet: KubeletStandIn) -> str:
    return "\n".join(event.message for event in kubelet.events)


async def test_a_container_starts_once_its_function_was_programmed(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    rack.add_card(CardSpec(driver="opae", afu_ids=(NLB0,)))
    install(storage, NLB3)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods) as plugin:
        admitted = await start(kubelet, pods, wants("p", NLB3))
        assert admitted["c"].running
        assert [(each.what, each.port, each.afu_id) for each in driver.done] == [
            ("programmed", "intel-fpga-port.0", NLB3),
            ("reset", "intel-fpga-port.0", NLB3),
        ]
        counts = plugin.metrics._programmings
        assert counts.labels("programmed")._value.get() == 1
        assert plugin.metrics._programming.labels(A10_INTERFACE, NLB3)._sum.get() > 0
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 1)


async def test_what_is_there_is_not_programmed_again_but_reset_before_each_start(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, driver: DriverStandIn
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        admitted = await start(kubelet, pods, wants("p", NLB0))
        await kubelet.restart_container(admitted, "c")
        await kubelet.until(lambda: admitted["c"].running)
        assert [each.what for each in driver.done] == ["reset", "reset"]


async def test_a_restarted_container_has_its_function_programmed_again_if_it_was_lost(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    card = rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    install(storage, NLB0)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        admitted = await start(kubelet, pods, wants("p", NLB0))
        rack.set_afu(card, NLB3)
        await kubelet.restart_container(admitted, "c")
        await kubelet.until(lambda: admitted["c"].running)
        assert [each.afu_id for each in driver.programmed] == [NLB0]


async def test_a_missing_bitstream_is_named_in_the_pods_events_and_heals_once_installed(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, storage: BitstreamStorage
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        admitted = await start(kubelet, pods, wants("p", NLB0))
        assert not admitted["c"].started
        assert "code = NotFound" in said(kubelet)
        assert (
            f"no bitstream for AFU {NLB0} (interface {A10_INTERFACE}) in {storage.folder} on node"
            " n1; install it with: accelbind bitstream install FILE"
        ) in said(kubelet)
        install(storage, NLB0)
        await kubelet.until(lambda: admitted["c"].running)


async def test_an_init_and_an_app_container_that_share_a_region_programme_it_once(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    install(storage, NLB0)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        init = container("init", REGION, 1, functions(NLB0))
        spec = pod("p", container("c", REGION, 1, functions(NLB0)), init=[init])
        admitted = await start(kubelet, pods, spec)
        await kubelet.until(lambda: admitted["c"].running)
        assert [each.what for each in driver.done] == ["programmed", "reset", "reset"]


async def test_several_regions_are_programmed_with_the_least_work(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    rack.add_card(CardSpec(driver="opae", afu_ids=(NLB0,)))
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    install(storage, NLB3)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        admitted = await start(kubelet, pods, wants("p", NLB3, NLB0), count=2)
        assert admitted["c"].running
        assert [each.afu_id for each in driver.programmed] == [NLB3]


async def test_an_opencl_program_is_known_by_its_record(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(OPENCL_AFU,)))
    source = short_dir / "x.aocx"
    source.write_bytes(make_aocx(A10_INTERFACE, PROGRAM, raw_bitstream(OPENCL_AFU)))
    storage.install(source)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION, enforce_mappings="never"), pods):
        admitted = await start(kubelet, pods, wants("p", PROGRAM))
        assert admitted["c"].running
        assert len(driver.programmed) == 1
        await kubelet.restart_container(admitted, "c")
        await kubelet.until(lambda: admitted["c"].running)
        assert len(driver.programmed) == 1


@pytest.mark.parametrize("between", [None, PluginMode.AF])
async def test_what_a_container_may_have_programmed_by_itself_is_not_taken_for_what_is_written_down(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
    *,
    between: PluginMode | None,
) -> None:
    """In mode regiondevel; all OpenCL programs show the same id."""
    rack.add_card(CardSpec(driver="dfl", afu_ids=(OPENCL_AFU,)))
    source = short_dir / "x.aocx"
    source.write_bytes(make_aocx(A10_INTERFACE, PROGRAM, raw_bitstream(OPENCL_AFU)))
    storage.install(source)
    image, programmer = (
        Image.from_bitstream(read_bitstream(source)),
        Programmer(rack.root, short_dir / "state", calls=SimulatedCalls()),
    )
    assert programmer.ensure("dfl-port.0", image).programmed
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGIONDEVEL), pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) >= 1)
        assert programmer.check("dfl-port.0", image).programmed
    programmer.ensure("dfl-port.0", image)  # by hand, and then by a container
    if between is not None:
        async with running(settings(short_dir, between), pods):
            folder = plugins_folder(short_dir / "k")
            await eventually_async(lambda: last_mode(folder) is between)
    driver.done.clear()
    async with running(settings(short_dir, PluginMode.REGION, enforce_mappings="never"), pods):
        assert (await start(kubelet, pods, wants("p", PROGRAM)))["c"].running
        assert len(driver.programmed) == 1


async def test_a_record_counts_only_while_the_port_shows_what_was_programmed_then(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, driver: DriverStandIn
) -> None:
    """Somebody has programmed a function over it with another tool, that keeps no records."""
    card = rack.add_card(CardSpec(driver="dfl", afu_ids=(OPENCL_AFU,)))
    source = short_dir / "x.aocx"
    source.write_bytes(make_aocx(A10_INTERFACE, PROGRAM, raw_bitstream(OPENCL_AFU)))
    Programmer(rack.root, short_dir / "state", calls=SimulatedCalls()).ensure(
        "dfl-port.0", Image.from_bitstream(read_bitstream(source))
    )
    rack.set_afu(card, NLB0)
    driver.done.clear()
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        assert (await start(kubelet, pods, wants("p", NLB0)))["c"].running
        assert [each.what for each in driver.done] == ["reset"]


async def test_an_opencl_program_with_an_id_of_its_own_is_told_from_a_function_with_that_id(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    source = short_dir / "x.aocx"
    packed = gzip.compress(make_gbs(A10_INTERFACE, NLB0, raw_bitstream(NLB0)))
    source.write_bytes(aocx_of(PROGRAM, packed))
    storage.install(source)
    install(storage, NLB0)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION, enforce_mappings="never"), pods):
        for name, wanted in (("p", PROGRAM), ("q", PROGRAM), ("r", NLB0), ("s", NLB0)):
            admitted = await start(kubelet, pods, wants(name, wanted))
            assert admitted["c"].running
            await kubelet.delete_pod(admitted)
        did = [each.what for each in driver.done]
        assert did == ["programmed", "reset", "reset", "programmed", "reset", "reset"]


async def test_the_id_that_all_opencl_programs_show_is_programmed_each_time(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    """Whoever maps it has a GBS of it, and nobody can tell whether that is what is there."""
    rack.add_card(CardSpec(driver="dfl", afu_ids=(OPENCL_AFU,)))
    install(storage, OPENCL_AFU)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION, enforce_mappings="never"), pods):
        admitted = await start(kubelet, pods, wants("p", OPENCL_AFU))
        assert admitted["c"].running
        assert [each.afu_id for each in driver.programmed] == [OPENCL_AFU]


async def test_what_the_namespace_does_not_map_is_not_programmed(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    install(storage, NLB3)
    pods = Pods()
    pods.mapped = EMPTY_INDEX
    async with running(settings(short_dir, PluginMode.REGION), pods):
        admitted = await start(kubelet, pods, wants("p", NLB3))
        assert not admitted["c"].started
        assert "code = PermissionDenied" in said(kubelet)
        assert "no AcceleratorFunction of mode region in namespace ns maps that" in said(kubelet)
        assert driver.done == []
        pods.mapped = mapping_both_functions()
        await kubelet.until(lambda: admitted["c"].running)


async def test_while_the_api_server_is_away_only_what_was_allowed_starts_again(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    for _ in range(2):
        rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    pods = Pods()
    options = settings(short_dir, PluginMode.REGION)
    async with running(options, pods):
        allowed = await start(kubelet, pods, wants("allowed", NLB0))
        assert allowed["c"].running
    pods.error = ClusterError("the API server https://k can't be reached")
    async with running(options, pods):  # another process would read the same approvals
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 2)
        await kubelet.restart_container(allowed, "c")
        await kubelet.until(lambda: allowed["c"].running)
        other = await start(kubelet, pods, wants("other", NLB0))
        assert not other["c"].started
        assert "has not been allowed to start here before" in said(kubelet)
        pods.error = None
        await kubelet.until(lambda: other["c"].running)


async def test_another_function_than_the_metadata_says_does_not_start(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, storage: BitstreamStorage
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    install(storage, NLB0, carrying=OPENCL_AFU)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods) as plugin:
        admitted = await start(kubelet, pods, wants("p", NLB0))
        assert not admitted["c"].started
        assert "code = Internal" in said(kubelet)
        assert f'shows AFU "{OPENCL_AFU}" and not {NLB0} after it was programmed' in said(kubelet)
        assert plugin.metrics._programmings.labels("failed")._value.get() >= 1
        install(storage, NLB0)
        await kubelet.until(lambda: admitted["c"].running)


async def test_hardware_that_refuses_is_told_and_tried_again(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    install(storage, NLB0)
    driver.refuse = True
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        admitted = await start(kubelet, pods, wants("p", NLB0))
        assert not admitted["c"].started
        assert "the hardware refused" in said(kubelet)
        driver.refuse = False
        await kubelet.until(lambda: admitted["c"].running)


async def test_a_card_that_hangs_is_unhealthy_and_holds_up_no_other(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = BitstreamStorage(short_dir / "bitstreams")
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    install(storage, NLB0)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        driver.go_on.clear()
        with monkeypatch.context() as impatient:
            impatient.setattr(regions, "WORK_SECONDS", 0.3)
            admitted = await start(kubelet, pods, wants("p", NLB0))
            assert not admitted["c"].started
            assert "code = DeadlineExceeded" in said(kubelet)
            await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 0)
        rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
        other = await start(kubelet, pods, wants("other", NLB0))
        assert other["c"].running
        driver.go_on.set()
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 2)
        await kubelet.until(lambda: admitted["c"].running)


async def test_a_start_without_the_time_left_says_so_and_the_work_goes_on(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    install(BitstreamStorage(short_dir / "bitstreams"), NLB0)
    pods, up = Pods(), "code = DeadlineExceeded desc = the time for this start is up"
    went_on = "s left, and goes on; the kubelet will try again"
    async with running(settings(short_dir, PluginMode.REGION), pods):
        with monkeypatch.context() as patch:
            patch.setattr(start_gate, "CHECK_SECONDS", 2.0)
            driver.go_on.clear()
            admitted = await start(kubelet, pods, wants("p", NLB0))
            await kubelet.until(lambda: up in said(kubelet) and went_on in said(kubelet))
        assert kubelet.allocatable.get(REGION) == 1  # slow is not hung
        driver.go_on.set()
        await kubelet.until(lambda: admitted["c"].running)
        assert len(driver.programmed) == 1


async def test_a_storage_that_hangs_holds_up_nobody_who_needs_no_bitstream(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(2):
        rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    pods, hangs, goes_on = Pods(), threading.Event(), threading.Event()
    load = BitstreamStorage.load

    def hanging(storage: BitstreamStorage, interface_id: str, function_id: str) -> Bitstream:
        hangs.set()
        goes_on.wait()
        return load(storage, interface_id, function_id)

    monkeypatch.setattr(BitstreamStorage, "load", hanging)
    install(BitstreamStorage(short_dir / "bitstreams"), NLB0)
    async with running(settings(short_dir, PluginMode.REGION), pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 2)
        first = await kubelet.admit(pods.add(wants("first", NLB0)))
        await eventually_async(hangs.is_set)
        second = await start(kubelet, pods, wants("second", NLB3))
        assert second["c"].running
        goes_on.set()
        await kubelet.until(lambda: first["c"].running)


async def test_only_so_many_bitstreams_are_in_memory_at_once(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regions, "BITSTREAM_MEMORY", 1)
    monkeypatch.setattr(regions, "WORK_SECONDS", 600.0)
    monkeypatch.setattr(start_gate, "CHECK_SECONDS", 600.0)
    for _ in range(2):
        rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    install(BitstreamStorage(short_dir / "bitstreams"), NLB0)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 2)
        driver.go_on.clear()
        first = await kubelet.admit(pods.add(wants("first", NLB0)))
        await eventually_async(lambda: bool(driver.begun))
        with monkeypatch.context() as patch:
            patch.setattr(start_gate, "CHECK_SECONDS", 2.0)
            second = await start(kubelet, pods, wants("second", NLB0))
            await kubelet.until(lambda: "took all the memory for bitstreams" in said(kubelet))
        assert len(driver.begun) == 1
        driver.go_on.set()
        await kubelet.until(lambda: first["c"].running and second["c"].running)


def scans(plugin: Plugin) -> float:
    return plugin.registry.get_sample_value("accelbind_scan_seconds_count") or 0


async def test_a_region_that_is_being_programmed_stays_as_it_was_seen(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    card = rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    install(storage, NLB0)
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods) as plugin:
        driver.go_on.clear()
        await kubelet.until(lambda: kubelet.allocatable.get(REGION) == 1)
        admitted = await kubelet.admit(pods.add(wants("p", NLB0)))
        starting = asyncio.create_task(kubelet.settled(admitted))
        await eventually_async(lambda: any(key.startswith("card ") for key in plugin.calls.busy))
        rack.set_afu(card, "f" * 32)  # what a port shows in the middle of it
        before = scans(plugin)
        plugin.state.request_rescan()
        await eventually_async(lambda: scans(plugin) > before + 1)
        assert kubelet.allocatable.get(REGION) == 1
        driver.go_on.set()
        await starting
        assert admitted["c"].running
        assert kubelet.allocatable.get(REGION) == 1


async def test_the_pod_is_told_what_was_programmed_for_it_or_why_not(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    told: list[EventRecord] = []
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods, events=told):
        admitted = await start(kubelet, pods, wants("p", NLB0))
        install(BitstreamStorage(short_dir / "bitstreams"), NLB0)
        await kubelet.until(lambda: admitted["c"].running)
    mine = [each for each in told if each.object.kind == "Pod"]
    assert {(each.object.namespace, each.object.name, each.object.uid) for each in mine} == {
        ("ns", "p", "uid-of-p")
    }
    failed, programmed = mine[0], mine[-1]
    assert (failed.reason, failed.warning) == ("ProgrammingFailed", True)
    assert "no bitstream for AFU" in failed.message
    assert (programmed.reason, programmed.warning) == ("Programmed", False)
    assert programmed.message == (
        f'container "c" of pod ns/p: AFU {NLB0} programmed into dfl-fme.0 (dfl-port.0)'
    )


async def test_every_port_of_a_region_carries_what_was_asked_for_and_is_reset(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    storage: BitstreamStorage,
) -> None:
    """The container gets all ports, and its namespace may not map what is in the others."""
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3, NLB0)))
    pods = Pods()
    async with running(settings(short_dir, PluginMode.REGION), pods):
        admitted = await start(kubelet, pods, wants("p", NLB0))
        assert not admitted["c"].started
        assert (
            "on node n1 for dfl-port.0 of region dfl-fme.0, since the container gets every port of"
            " the region; install it with"
        ) in said(kubelet)
        assert driver.done == []
        install(storage, NLB0)
        await kubelet.until(lambda: admitted["c"].running)
        assert [(each.what, each.port, each.afu_id) for each in driver.done] == [
            ("reset", "dfl-port.1", NLB0),
            ("programmed", "dfl-port.0", NLB0),
            ("reset", "dfl-port.0", NLB0),
        ]
        assert sorted(each.container_path for each in admitted["c"].granted.devices) == [
            "/dev/dfl-port.0",
            "/dev/dfl-port.1",
        ]
        driver.done.clear()
        await kubelet.restart_container(admitted, "c")
        await kubelet.until(lambda: admitted["c"].running)
        assert [each.what for each in driver.done] == ["reset", "reset"]
