"""A node that serves or has served mode regiondevel: what its ports show is not trusted."""

import shutil
from array import array
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from accelbind.cli import main
from services.devices.model import PluginMode
from services.kubelet.sockets import plugins_folder
from services.node.node_mark import wanted_mark
from services.node.offer_memory import last_mode
from services.process.errors import DeviceRefused
from services.programming.programmer import Image, Programmer
from services.programming.records import Mark, read_marks
from simulator.apiserver.standin import ApiServerStandIn
from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3, CardSpec
from simulator.driver import DriverStandIn, SimulatedCalls, raw_bitstream
from tests.plugin.support import REGION, Bed, running, settings
from tests.plugin.test_annotation import annotate, offers
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

AF, REGIONDEVEL = PluginMode.AF, PluginMode.REGIONDEVEL
OPEN, CLOSED = Mark(), Mark("t")
ADDRESS = "0000:5e:00.0"


@pytest.fixture(autouse=True)
def bitstreams(bed: Bed, driver: DriverStandIn) -> None:  # noqa: ARG001 - it only has to run
    bed.install(NLB0, NLB3)


def image(afu_id: str) -> Image:
    return Image(A10_INTERFACE, afu_id, lambda: array("B", raw_bitstream(afu_id)))


def add_card(bed: Bed, shows: str = NLB0) -> None:
    bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(shows,), address=ADDRESS))


def lasting(folder: Path) -> Path:
    return plugins_folder(folder / "k") / "accelbind"


def was_served(folder: Path, mode: PluginMode) -> bool:
    return last_mode(plugins_folder(folder / "k")) is mode


async def serve(bed: Bed, mode: PluginMode, **values: Any) -> None:
    """Have a mode served for a moment."""
    async with bed.running(mode, **values):
        await eventually_async(partial(was_served, bed.folder, mode))


async def start(bed: Bed, name: str, afu: str = NLB0, **values: Any) -> bool:
    """Whether a container starts in mode region, on a plugin of its own."""
    async with bed.running(PluginMode.REGION, **values):
        state = await bed.wants(name, afu)
        runs = state["c"].running
        await bed.kubelet.delete_pod(state)
    return runs


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
    bed: Bed,
    driver: DriverStandIn,
    then: Callable[[Path], None],
    between: PluginMode | None,
) -> None:
    """Its image shows the id of another namespace's function."""
    add_card(bed)
    await serve(bed, REGIONDEVEL)
    then(bed.folder)
    if between is not None:
        await serve(bed, between)
    assert await start(bed, "first")
    assert [each.afu_id for each in driver.programmed] == [NLB0]
    assert await start(bed, "second")
    assert len(driver.programmed) == 1
    reboot(bed.folder)
    assert await start(bed, "third")
    assert len(driver.programmed) == 2


async def test_a_card_that_is_away_while_the_mode_changes_is_programmed_once_it_is_back(
    bed: Bed, driver: DriverStandIn
) -> None:
    add_card(bed)
    bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB3,)))
    await serve(bed, REGIONDEVEL)
    bed.rack.remove_card(ADDRESS)
    await serve(bed, AF)
    add_card(bed)
    assert await start(bed, "p")
    assert [each.afu_id for each in driver.programmed] == [NLB0]


async def test_a_folder_of_records_that_can_not_be_written_loses_no_distrust(
    bed: Bed, driver: DriverStandIn
) -> None:
    add_card(bed)
    (bed.folder / "file").write_text("")
    for mode in (REGIONDEVEL, AF):
        await serve(bed, mode, state_dir=bed.folder / "file/state")
    assert await start(bed, "p")
    assert len(driver.programmed) == 1


async def test_a_half_programmed_port_stays_one_whatever_modes_are_served(
    bed: Bed, driver: DriverStandIn
) -> None:
    add_card(bed)
    programmer = Programmer(bed.rack.root, bed.folder / "state", calls=SimulatedCalls())
    driver.refuse = True
    with pytest.raises(DeviceRefused, match="must be reprogrammed"):
        programmer.ensure("dfl-port.0", image(NLB3))
    driver.refuse = False
    for mode in (REGIONDEVEL, AF):
        await serve(bed, mode)
        assert programmer.check("dfl-port.0", image(NLB0)).programmed
    assert await start(bed, "p")
    assert len(driver.programmed) == 1


async def test_a_kubelets_folder_that_takes_only_sockets_loses_distrust_in_a_reboot_only(
    bed: Bed, driver: DriverStandIn
) -> None:
    """As where SELinux enforces."""
    add_card(bed)
    lasting(bed.folder).write_text("no folder")
    with capture_logs() as logs:
        async with bed.running(REGIONDEVEL):
            await bed.offers(1, REGION)
    assert "it is lost in a reboot" in [line.get("loss") for line in logs]
    assert await start(bed, "p")
    assert len(driver.programmed) == 1


async def test_no_region_is_offered_for_programming_until_the_mark_is_written(bed: Bed) -> None:
    add_card(bed)
    folder = lasting(bed.folder)
    folder.write_text("no folder")
    with capture_logs() as logs:
        async with bed.running(REGIONDEVEL, state_dir=folder / "state"):
            told = "no device is offered until the node's mark of mode regiondevel is written"
            await eventually_async(lambda: told in [line["event"] for line in logs])
            assert REGION not in bed.kubelet.capacity
            folder.unlink()
            await bed.offers(1, REGION)
    assert read_marks(folder) == OPEN


async def test_the_flag_of_a_node_whose_annotation_says_otherwise_loses_no_record(
    bed: Bed, driver: DriverStandIn
) -> None:
    """`--mode regiondevel` on a node annotated region: that mode is never served."""
    add_card(bed)
    driver.refuse = True
    with pytest.raises(DeviceRefused):
        Programmer(bed.rack.root, bed.folder / "state", calls=SimulatedCalls()).ensure(
            "dfl-port.0", image(NLB3)
        )
    before = {path: path.read_bytes() for path in (bed.folder / "state/records").iterdir()}
    (bed.folder / "api").mkdir()
    async with ApiServerStandIn(bed.folder / "api") as api:
        annotate(api, "region")
        async with running(settings(bed.folder, REGIONDEVEL), api=api):
            await offers(bed.kubelet, region=1)
    assert list(before.values()) == [b""]
    assert {path: path.read_bytes() for path in before} == before
    assert read_marks(lasting(bed.folder)) is None


# Where nothing is programmed before a container starts -------------------------------------------


async def verified(bed: Bed, name: str) -> bool:
    """Whether a container starts with `--programming=none`."""
    return await start(bed, name, programming="none")


def fpga_program(folder: Path, afu: str) -> int:
    """`accelbind fpga program` on this node."""
    file = folder / "by-hand.gbs"
    file.write_bytes(make_gbs(A10_INTERFACE, afu, raw_bitstream(afu)))
    options = {"root": "root", "state-dir": "state", "kubelet-dir": "k"}
    flags = [f"--{name}={folder / value}" for name, value in options.items()]
    command = ["fpga", "program", "dfl-port.0", str(file), *flags]
    return main(command, driver_calls=SimulatedCalls())


async def tenant(bed: Bed) -> None:
    """Mode regiondevel was served, and a tenant may have programmed the port."""
    await serve(bed, REGIONDEVEL)


async def refused_start(bed: Bed) -> None:
    """The plugin has begun to program the port, and the hardware refused."""
    assert not await start(bed, "refused", NLB3)


async def refused_by_hand(bed: Bed) -> None:
    """`accelbind fpga program` has begun to program the port, and the hardware refused."""
    assert fpga_program(bed.folder, NLB3) != 0


@pytest.mark.parametrize(
    ("before", "then"),
    [(tenant, nothing), (tenant, reboot), (refused_start, reboot), (refused_by_hand, reboot)],
)
async def test_a_port_of_unknown_content_is_refused_until_it_is_programmed_by_hand(
    bed: Bed,
    driver: DriverStandIn,
    before: Callable[[Bed], Awaitable[None]],
    then: Callable[[Path], None],
) -> None:
    """It still shows the function that the container wants."""
    add_card(bed)
    assert await verified(bed, "trusted")
    driver.refuse = True
    await before(bed)
    driver.refuse = False
    then(bed.folder)
    assert not await verified(bed, "first")
    assert "the content of dfl-port.0 is unknown" in bed.said
    assert "accelbind fpga program dfl-port.0 FILE" in bed.said
    assert fpga_program(bed.folder, NLB0) == 0
    assert await verified(bed, "second")
    assert [each.afu_id for each in driver.programmed] == [NLB0]
