"""The process is killed while it prepares a claim: the next one goes on where it was."""

import asyncio
import contextlib
from collections.abc import Callable

import grpc.aio
import pytest

from dra.book import ClaimBook
from simulator.cards import CardSpec
from simulator.driver import DriverStandIn
from tests.dra.support import NLB0, NLB3, Bed, claim, config, mapping, result
from tests.support import Process, Processes, eventually_async, python_module, soaking

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(0 if soaking() else 300)]

POINTS = ("called", "reserved", "programming", "programmed", "written", "committed")
"""What the process is seen to have done when it is killed."""


@pytest.mark.parametrize("point", POINTS if soaking() else POINTS[2:3])
async def test_a_claim_is_ready_after_a_kill(
    bed: Bed, driver: DriverStandIn, processes: Processes, point: str
) -> None:
    bed.install(NLB3)
    bed.api.put(mapping("nlb3", NLB3))
    address = bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    fpga = f"fpga-{address.replace(':', '-').replace('.', '-')}"
    one = claim("c", result(fpga), configs=(config({"mapping": "nlb3"}, "FromClaim"),))
    bed.api.put(one)
    book = ClaimBook(bed.folder / "state/claims")
    reached: dict[str, Callable[[], bool]] = {
        "called": lambda: True,
        "reserved": lambda: bool(book.entries()),
        "programming": lambda: bool(driver.begun),
        "programmed": lambda: bool(driver.programmed),
        "written": lambda: any((bed.folder / "cdi").glob("*")),
        "committed": lambda: any(each.is_committed for each in book.entries()),
    }
    killed = await started(bed, processes)
    calling = asyncio.create_task(bed.prepare(one))
    await eventually_async(reached[point], interval=0.001)
    killed.kill()
    with contextlib.suppress(grpc.aio.AioRpcError):
        await calling
    await started(bed, processes)
    await bed.ready(one)
    assert [each.is_committed for each in book.entries()] == [True]
    assert {each.afu_id for each in driver.programmed} == {NLB3}
    assert len(driver.programmed) <= 2
    await bed.unprepare(one)
    assert bed.left == []


async def started(bed: Bed, processes: Processes) -> Process:
    """A process that serves, perhaps after one that was killed."""
    given = bed.options.model_dump(exclude_unset=True)
    env = {f"ACCELBIND_{name.upper()}": str(value) for name, value in given.items()}
    env |= {"KUBECONFIG": str(bed.api.kubeconfig_path)}
    process = processes.start(python_module("simulator.command", "dra"), name="dra", env=env)

    async def serves() -> bool:
        process.assert_running()
        try:
            await bed.register()
        except grpc.aio.AioRpcError:  # the socket isn't there yet, or was left by a killed process
            return False
        return True

    await eventually_async(serves)
    return process
