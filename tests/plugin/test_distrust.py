"""A node that serves or has served mode regiondevel: what its ports show is not trusted."""

import json
import shutil
from array import array
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from accelbind.cli import main
from services.bitstreams.storage import BitstreamStorage
from services.devices.model import PluginMode
from services.kubelet.sockets import plugins_folder
from services.node.node_mark import wanted_mark
from services.node.offer_memory import last_mode
from services.process.errors import DeviceRefused
from services.programming.distrust import Mark, read_mark
from services.programming.image import Image
from services.programming.programmer import Programmer
from simulator.apiserver.standin import ApiServerStandIn
from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3, CardSpec, Rack
from simulator.driver import DriverStandIn, SimulatedCalls, raw_bitstream
from simulator.kubelet.pods import PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import REGION, Pods, container, functions, pod, running, settings
from tests.plugin.test_annotation import annotate, offers
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

AF, REGIONDEVEL = PluginMode.AF, PluginMode.REGIONDEVEL
OPEN, CLOSED = Mark(), Mark("t")
ADDRESS = "0000:5e:00.0"


@pytest.fixture(autouse=True)
def driver(rack: Rack) -> Iterator[DriverStandIn]:
    with DriverStandIn(rack.root) as driver:
        yield driver


@pytest.fixture(autouse=True)
def storage(short_dir: Path) -> None:
    for afu in (NLB0, NLB3):
        source = short_dir / "new.gbs"
        source.write_bytes(make_gbs(A10_INTERFACE, afu, raw_bitstream(afu)))
        BitstreamStorage(short_dir / "bitstreams").install(source)


def image(afu_id: str) -> Image:
    return Image(A10_INTERFACE, afu_id, lambda: array("B", raw_bitstream(afu_id)))


def add_card(rack: Rack, shows: str) -> None:
    rack.add_card(CardSpec(driver="dfl", afu_ids=(shows,), address=ADDRESS))


def lasting(folder: Path) -> Path:
    return plugins_folder(folder / "k") / "accelbind"


def was_served(folder: Path, mode: PluginMode) -> bool:
    return last_mode(plugins_folder(folder / "k")) is mode


async def serve(folder: Path, kubelet: KubeletStandIn, mode: PluginMode) -> None:
    """Has a mode served for a moment."""
    before = len([call for call in kubelet.calls if call.method == "Registered"])
    async with running(settings(folder, mode), Pods()):
        await kubelet.until(
            lambda: len([call for call in kubelet.calls if call.method == "Registered"]) > before
        )
        await eventually_async(partial(was_served, folder, mode))


async def start(folder: Path, kubelet: KubeletStandIn, name: str, afu: str) -> PodState:
    """Starts a container in mode region, on a plugin of its own."""
    pods = Pods()
    async with running(settings(folder, PluginMode.REGION), pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) >= 1)
        spec = pod(name, container("c", REGION, 1, functions(afu)))
        state = await kubelet.settled(await kubelet.admit(pods.add(spec)))
        await kubelet.delete_pod(state)
    return state


@pytest.mark.parametrize(
    ("mode", "mark", "last", "wanted"),
    [
        (AF, None, None, None),
        (AF, None, AF, None),
        (AF, CLOSED, AF, CLOSED),
        (REGIONDEVEL, None, None, OPEN),
        (REGIONDEVEL, CLOSED, AF, OPEN),
        (REGIONDEVEL, OPEN, REGIONDEVEL, OPEN),
        (AF, OPEN, REGIONDEVEL, "another"),
        (AF, OPEN, None, "another"),
        (AF, None, REGIONDEVEL, "another"),
        (AF, CLOSED, REGIONDEVEL, "another"),
    ],
)
def test_the_mark_follows_the_modes(
    mode: PluginMode, mark: Mark | None, last: PluginMode | None, wanted: Mark | str | None
) -> None:
    found = wanted_mark(mode, mark, last)
    if wanted == "another":
        assert found is not None
        assert found.since not in {None, CLOSED.since}
        assert found != wanted_mark(mode, mark, last)
    else:
        assert found == wanted


def nothing(_folder: Path) -> None:
    """What happens after mode regiondevel: nothing but another mode."""


def reboot(folder: Path) -> None:
    """`/run` is empty after that; the content of an FPGA survives a warm one."""
    shutil.rmtree(folder / "state")


def older_plugin(folder: Path) -> None:
    """The plugin that served regiondevel kept no mark."""
    (lasting(folder) / "untrusted.json").unlink()
    (folder / "state/untrusted.json").unlink()


def damaged(folder: Path) -> None:
    """Nobody can read the mark."""
    (lasting(folder) / "untrusted.json").write_bytes(b"\0")


@pytest.mark.parametrize(
    ("then", "between"), [(nothing, None), (reboot, AF), (older_plugin, None), (damaged, AF)]
)
async def test_what_a_tenant_programmed_in_regiondevel_is_replaced_before_the_first_start(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    *,
    then: Callable[[Path], None],
    between: PluginMode | None,
) -> None:
    """Its image shows the id of another namespace's function."""
    add_card(rack, NLB0)
    await serve(short_dir, kubelet, REGIONDEVEL)
    then(short_dir)
    if between is not None:
        await serve(short_dir, kubelet, between)
    assert (await start(short_dir, kubelet, "first", NLB0))["c"].running
    assert [each.afu_id for each in driver.programmed] == [NLB0]
    assert (await start(short_dir, kubelet, "second", NLB0))["c"].running
    assert len(driver.programmed) == 1
    reboot(short_dir)
    assert (await start(short_dir, kubelet, "third", NLB0))["c"].running
    assert len(driver.programmed) == 2


async def test_a_card_that_is_away_while_the_mode_changes_is_programmed_once_it_is_back(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, driver: DriverStandIn
) -> None:
    add_card(rack, NLB0)
    rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    await serve(short_dir, kubelet, REGIONDEVEL)
    rack.remove_card(ADDRESS)
    await serve(short_dir, kubelet, AF)
    add_card(rack, NLB0)
    assert (await start(short_dir, kubelet, "p", NLB0))["c"].running
    assert [each.afu_id for each in driver.programmed] == [NLB0]


async def test_a_folder_of_records_that_can_not_be_written_loses_no_distrust(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, driver: DriverStandIn
) -> None:
    add_card(rack, NLB0)
    (short_dir / "file").write_text("")
    for mode in (REGIONDEVEL, AF):
        options = settings(short_dir, mode, state_dir=short_dir / "file/state")
        async with running(options, Pods()):
            await eventually_async(partial(was_served, short_dir, mode))
    assert (await start(short_dir, kubelet, "p", NLB0))["c"].running
    assert len(driver.programmed) == 1


async def test_a_half_programmed_port_stays_one_whatever_modes_are_served(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, driver: DriverStandIn
) -> None:
    add_card(rack, NLB0)
    programmer = Programmer(rack.root, short_dir / "state", calls=SimulatedCalls())
    driver.refuse = True
    with pytest.raises(DeviceRefused, match="must be reprogrammed"):
        programmer.ensure("dfl-port.0", image(NLB3))
    driver.refuse = False
    for mode in (REGIONDEVEL, AF):
        await serve(short_dir, kubelet, mode)
        assert programmer.check("dfl-port.0", image(NLB0)).programmed
    assert (await start(short_dir, kubelet, "p", NLB0))["c"].running
    assert len(driver.programmed) == 1


async def test_a_kubelets_folder_that_takes_only_sockets_loses_distrust_in_a_reboot_only(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, driver: DriverStandIn
) -> None:
    """As where SELinux enforces."""
    add_card(rack, NLB0)
    lasting(short_dir).write_text("no folder")
    with capture_logs() as logs:
        async with running(settings(short_dir, REGIONDEVEL), Pods()):
            await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) == 1)
    assert "it is lost in a reboot" in [line.get("loss") for line in logs]
    assert (await start(short_dir, kubelet, "p", NLB0))["c"].running
    assert len(driver.programmed) == 1


async def test_no_region_is_offered_for_programming_until_the_mark_is_written(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    add_card(rack, NLB0)
    lasting(short_dir).write_text("no folder")
    with capture_logs() as logs:
        options = settings(short_dir, REGIONDEVEL, state_dir=lasting(short_dir) / "state")
        async with running(options, Pods()):
            told = "no device is offered until the node's mark of mode regiondevel is written"
            await eventually_async(lambda: told in [line["event"] for line in logs])
            assert REGION not in kubelet.capacity
            lasting(short_dir).unlink()
            await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) == 1)
    assert read_mark(lasting(short_dir)) == OPEN


async def test_the_flag_of_a_node_whose_annotation_says_otherwise_loses_no_record(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
) -> None:
    """`--mode regiondevel` on a node annotated region: that mode is never served."""
    add_card(rack, NLB0)
    driver.refuse = True
    with pytest.raises(DeviceRefused):
        Programmer(rack.root, short_dir / "state", calls=SimulatedCalls()).ensure(
            "dfl-port.0", image(NLB3)
        )
    before = {path: path.read_bytes() for path in (short_dir / "state/records").iterdir()}
    (short_dir / "api").mkdir()
    async with ApiServerStandIn(short_dir / "api") as api:
        annotate(api, "region")
        async with running(settings(short_dir, REGIONDEVEL), api=api):
            await offers(kubelet, region=1)
    assert [json.loads(each)["program"] for each in before.values()] == [""]
    assert {path: path.read_bytes() for path in before} == before
    assert read_mark(lasting(short_dir)) is None


# Where nothing is programmed before a container starts -------------------------------------------


async def verified(folder: Path, kubelet: KubeletStandIn, name: str, afu: str) -> tuple[bool, str]:
    """Whether a container starts with `--programming=none`, and what its pod's events say."""
    pods, before = Pods(), len(kubelet.events)
    async with running(settings(folder, PluginMode.REGION, programming="none"), pods):
        await kubelet.until(lambda: kubelet.allocatable.get(REGION, 0) >= 1)
        spec = pod(name, container("c", REGION, 1, functions(afu)))
        state = await kubelet.settled(await kubelet.admit(pods.add(spec)))
        await kubelet.delete_pod(state)
    return state["c"].running, "\n".join(each.message for each in list(kubelet.events)[before:])


def fpga_program(folder: Path, afu: str) -> int:
    """`accelbind fpga program` on this node."""
    file = folder / "by-hand.gbs"
    file.write_bytes(make_gbs(A10_INTERFACE, afu, raw_bitstream(afu)))
    options = {"root": "root", "state-dir": "state", "kubelet-dir": "k"}
    flags = [f"--{name}={folder / value}" for name, value in options.items()]
    command = ["fpga", "program", "dfl-port.0", str(file), *flags]
    return main(command, driver_calls=SimulatedCalls())


async def tenant(folder: Path, kubelet: KubeletStandIn, _driver: DriverStandIn) -> None:
    """Mode regiondevel was served, and a tenant may have programmed the port."""
    await serve(folder, kubelet, REGIONDEVEL)


async def refused_start(folder: Path, kubelet: KubeletStandIn, driver: DriverStandIn) -> None:
    """The plugin has begun to program the port, and the hardware refused."""
    driver.refuse = True
    assert not (await start(folder, kubelet, "refused", NLB3))["c"].started
    driver.refuse = False


async def refused_by_hand(folder: Path, _kubelet: KubeletStandIn, driver: DriverStandIn) -> None:
    """`accelbind fpga program` has begun to program the port, and the hardware refused."""
    driver.refuse = True
    assert fpga_program(folder, NLB3) != 0
    driver.refuse = False


@pytest.mark.parametrize(
    ("before", "then"),
    [(tenant, nothing), (tenant, reboot), (refused_start, reboot), (refused_by_hand, reboot)],
)
async def test_a_port_of_unknown_content_is_refused_until_it_is_programmed_by_hand(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    driver: DriverStandIn,
    *,
    before: Callable[[Path, KubeletStandIn, DriverStandIn], Awaitable[None]],
    then: Callable[[Path], None],
) -> None:
    """It still shows the function that the container wants."""
    add_card(rack, NLB0)
    assert (await verified(short_dir, kubelet, "trusted", NLB0))[0]
    await before(short_dir, kubelet, driver)
    then(short_dir)
    runs, said = await verified(short_dir, kubelet, "first", NLB0)
    assert not runs
    assert "the content of dfl-port.0 is unknown" in said
    assert "accelbind fpga program dfl-port.0 FILE" in said
    assert fpga_program(short_dir, NLB0) == 0
    assert (await verified(short_dir, kubelet, "second", NLB0))[0]
    assert [each.afu_id for each in driver.programmed] == [NLB0]
