"""What a port shows is no proof of its content: only what accelbind has programmed counts."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from accelbind.cli import main
from services.devices.model import PluginMode
from services.kubelet.sockets import plugins_folder
from services.node.last_mode import last_mode
from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from simulator.driver import DriverStandIn, SimulatedCalls, raw_bitstream
from tests.plugin.support import AF as OFFERED
from tests.plugin.support import Bed, serving
from tests.support import eventually_async

AF, REGIONDEVEL = PluginMode.AF, PluginMode.REGIONDEVEL


@pytest.fixture(autouse=True)
def bitstreams(bed: Bed, driver: DriverStandIn) -> None:  # noqa: ARG001 - it only has to run
    bed.install(NLB0, NLB3)


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


def nothing(_folder: Path) -> None:
    """What happens after mode regiondevel: nothing but another mode."""


def reboot(folder: Path) -> None:
    """`/run` is empty after that; the content of an FPGA survives a warm one."""
    shutil.rmtree(folder / "state")


def copied_back(folder: Path) -> None:
    """Records of the time before are there again."""
    shutil.copytree(folder / "before", folder / "state/ports", dirs_exist_ok=True)


@pytest.mark.parametrize("then", [reboot, copied_back])
async def test_functions_programmed_by_a_workload_are_replaced_before_the_first_start(
    bed: Bed, driver: DriverStandIn, then: Callable[[Path], None]
) -> None:
    """Its image shows the id of another namespace's function."""
    bed.add_card(NLB0)
    bed.record_ports()
    shutil.copytree(bed.folder / "state/ports", bed.folder / "before")
    await serve(bed, REGIONDEVEL)
    then(bed.folder)
    assert await start(bed, "first")
    assert [each.afu_id for each in driver.programmed] == [NLB0]
    assert await start(bed, "second")
    assert len(driver.programmed) == 1


async def test_a_half_programmed_port_is_unhealthy_until_it_is_programmed(
    bed: Bed, driver: DriverStandIn
) -> None:
    """In mode af; mode region programs it."""
    bed.add_card(NLB0)
    async with bed.running(AF) as plugin:
        await bed.offers(1, OFFERED)
        driver.refuse = True
        assert await fpga_program(bed.folder, NLB3) != 0
        await bed.offers(0, OFFERED)
        (device,) = serving(plugin).node.state.ledger.offer.devices()
        assert [each.code for each in device.reasons] == ["programming-unfinished"]
        driver.refuse = False
        assert await fpga_program(bed.folder, NLB0) == 0
        await bed.offers(1, OFFERED)
        driver.refuse = True
        assert await fpga_program(bed.folder, NLB3) != 0
        driver.refuse = False
    assert await start(bed, "p")
    assert [each.afu_id for each in driver.programmed] == [NLB0, NLB0]


# Where nothing is programmed before a container starts -------------------------------------------


verified = partial(start, programming="none")
"""Whether a container starts where functions are only verified."""


async def fpga_program(folder: Path, afu: str) -> int:
    """`accelbind fpga program` on this node."""
    file = folder / "by-hand.gbs"
    file.write_bytes(make_gbs(A10_INTERFACE, afu, raw_bitstream(afu)))
    options = {"root": "root", "state-dir": "state"}
    flags = [f"--{name}={folder / value}" for name, value in options.items()]
    command = ["fpga", "program", "dfl-port.0", str(file), "--force", *flags]
    # In a thread, since it runs an event loop.
    return await asyncio.to_thread(main, command, driver_calls=SimulatedCalls())


async def tenant(bed: Bed) -> None:
    """Mode regiondevel was served, and a tenant may have programmed the port."""
    await serve(bed, REGIONDEVEL)


async def refused_by_hand(bed: Bed) -> None:
    """`accelbind fpga program` has begun to program the port, and the hardware refused."""
    assert await fpga_program(bed.folder, NLB3) != 0


@pytest.mark.parametrize(("before", "then"), [(tenant, nothing), (refused_by_hand, reboot)])
async def test_a_port_of_unknown_content_is_refused_until_it_is_programmed_by_hand(
    bed: Bed,
    driver: DriverStandIn,
    before: Callable[[Bed], Awaitable[None]],
    then: Callable[[Path], None],
) -> None:
    """It still shows the function that the container wants."""
    bed.add_card(NLB0)
    assert not await verified(bed, "shown")
    bed.record_ports()
    assert await verified(bed, "programmed")
    driver.refuse = True
    await before(bed)
    driver.refuse = False
    then(bed.folder)
    assert not await verified(bed, "first")
    assert "the content of dfl-port.0 is unknown" in bed.said
    assert "accelbind fpga program dfl-port.0 FILE" in bed.said
    assert await fpga_program(bed.folder, NLB0) == 0
    assert await verified(bed, "second")
    assert [each.afu_id for each in driver.programmed] == [NLB0]
