"""What the driver bears: an API server that is away, cards that hang, devices given out twice."""

import asyncio

import msgspec
import pytest

from simulator.cards import NLB0, NLB3
from simulator.driver import DriverStandIn
from tests.plugin.dra.support import DEVELOP, NEVER, Bed, claim, config, mapping, parts, result
from tests.support import eventually_async

NAMED = config({"mapping": "nlb3"}, "FromClaim")


@pytest.fixture
def fpga(bed: Bed, driver: DriverStandIn) -> str:  # noqa: ARG001 - answers its ioctls
    """The name of a card's only region, and what it takes to program it."""
    bed.install(NLB0, NLB3)
    bed.api.put(mapping("nlb3", NLB3))
    return bed.add_fpga()


async def test_a_claim_waits_for_a_device_that_another_one_still_has(bed: Bed, fpga: str) -> None:
    first = claim("first", result(fpga), configs=(config(NEVER),))
    second = claim("second", result(fpga), configs=(config(DEVELOP),))
    watching = claim("watching", result(fpga, adminAccess=True))
    async with bed.running() as dra:
        await bed.ready(first)
        bed.api.drop("ResourceClaim", "first", "ns")  # by force, before its containers end
        waiting = asyncio.create_task(bed.ready(second))
        edits = await bed.ready(watching)
        assert edits.devices
        assert "deviceNodes" not in next(iter(bed.cdi(watching).values()))
        assert [each.claim.name for each in parts(dra).book.entries()] == ["first", "watching"]
        assert not waiting.done()
        await bed.unprepare(first)
        await waiting


async def test_the_requests_of_a_claim_are_programmed_at_the_same_time(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    both = claim("first", result(fpga, "a"), result(bed.add_fpga(), "b"), configs=(NAMED,))
    driver.go_on.clear()
    async with bed.running():
        preparing = asyncio.create_task(bed.ready(both))
        await eventually_async(lambda: len(driver.begun) == 2)
        driver.go_on.set()
        await preparing


async def test_a_hanging_card_keeps_no_claim(bed: Bed, fpga: str, driver: DriverStandIn) -> None:
    first = claim("first", result(fpga), configs=(NAMED,))
    bed.api.put(first)
    driver.go_on.clear()
    async with bed.running() as dra:
        preparing = asyncio.create_task(bed.prepare(first))
        await eventually_async(lambda: driver.begun)
        await bed.unprepare(first)
        assert "meanwhile" in (await preparing)["first"].error
        assert bed.left == []
        # What still works on the card ends before another claim gets it.
        again = asyncio.create_task(bed.ready(claim("again", result(fpga), configs=(NAMED,))))
        book = parts(dra).book
        await eventually_async(lambda: "again" in [each.claim.name for each in book.entries()])
        driver.go_on.set()
        await again
    assert [each.afu_id for each in driver.programmed] == [NLB3]


async def test_a_committed_claim_has_the_device_that_it_had_and_follows_it(
    bed: Bed, fpga: str
) -> None:
    first = claim("first", result(fpga), configs=(config(NEVER),))
    async with bed.running() as dra:
        await bed.ready(first)
        book, (file,) = parts(dra).book, (bed.folder / "cdi").iterdir()
        entry, content = book.find("uid-of-first"), file.read_bytes()
        assert entry is not None
        moved = claim("first", result("fpga-other"), configs=(config(NEVER),))
        refusal = await bed.refused(moved)
        assert f"still has {fpga}" in refusal
        assert "dra release uid-of-first" in refusal
        # As after the card's driver was loaded again, which numbers regions anew.
        file.write_text("of another node")
        old = [msgspec.structs.replace(each, ids=("dfl-fme.7",)) for each in entry.wants]
        book.commit(msgspec.structs.replace(entry, wants=tuple(old)))
        await eventually_async(lambda: file.read_bytes() == content)
        assert book.find("uid-of-first") == entry
