"""What the driver bears: an API server that is away, cards that hang, devices given out twice."""

import asyncio

import msgspec
import pytest

from dra.claims import ClaimRef
from dra.process import Dra
from simulator.cards import CardSpec
from simulator.driver import DriverStandIn
from tests.dra.support import DEVELOP, NEVER, NLB0, NLB3, Bed, claim, config, mapping, result
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

NAMED = config({"mapping": "nlb3"}, "FromClaim")
FIRST = ClaimRef("ns", "first", "uid-of-first")


@pytest.fixture
def fpga(bed: Bed, driver: DriverStandIn) -> str:  # noqa: ARG001 - answers its ioctls
    """The name of a card's only region, and what it takes to program it."""
    bed.install(NLB0, NLB3)
    bed.api.put(mapping("nlb3", NLB3))
    address = bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    return f"fpga-{address.replace(':', '-').replace('.', '-')}"


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
        assert [each.claim.name for each in dra.parts.book.entries()] == ["first", "watching"]
        assert not waiting.done()
        await bed.unprepare(first)
        await waiting
        assert dra.parts.book.functions() == {fpga: ""}


async def test_pods_that_share_a_claim_wait_for_the_same_work(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    bed.api.put(claim("first", result(fpga), configs=(NAMED,)))
    driver.go_on.clear()
    async with bed.running() as dra:
        preparing = dra.parts.preparation.prepare
        ended = asyncio.create_task(preparing(FIRST))
        await eventually_async(lambda: driver.begun)
        others = [asyncio.create_task(preparing(FIRST)) for _ in range(2)]
        await asyncio.sleep(0)
        ended.cancel()  # of a kubelet that was killed
        await asyncio.wait([ended])
        driver.go_on.set()
        one, other = await asyncio.gather(*others)
    assert one == other
    assert len(driver.programmed) == 1


async def test_a_claim_is_taken_back_before_it_is_prepared_again(bed: Bed, fpga: str) -> None:
    async with bed.running() as dra:
        await bed.ready(claim("first", result(fpga), configs=(config(NEVER),)))
        preparation = dra.parts.preparation
        await asyncio.gather(preparation.unprepare(FIRST), preparation.prepare(FIRST))
        assert [each.is_committed for each in dra.parts.book.entries()] == [True]


async def test_a_claim_does_not_wait_for_a_device_while_the_driver_ends(
    bed: Bed, fpga: str
) -> None:
    second = claim("second", result(fpga), configs=(config(NEVER),))
    bed.api.put(second)
    async with bed.running():
        await bed.ready(claim("first", result(fpga), configs=(config(NEVER),)))
        waiting = asyncio.create_task(bed.prepare(second))
        await eventually_async(lambda: any("second" in each.request.path for each in bed.api.seen))
    assert "(of claim ns/first), and the driver ends" in (await waiting)["second"].error


async def test_who_watches_a_device_needs_to_know_no_other_claim(bed: Bed, fpga: str) -> None:
    async with bed.running() as dra:
        path = dra.parts.book.path("uid-of-other")
        path.parent.mkdir(parents=True)
        path.write_text("{")
        await bed.ready(claim("watching", result(fpga, adminAccess=True)))


async def test_the_requests_of_a_claim_are_programmed_at_the_same_time(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    address = bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    other = f"fpga-{address.replace(':', '-').replace('.', '-')}"
    both = claim("first", result(fpga, "a"), result(other, "b"), configs=(NAMED,))
    driver.go_on.clear()
    async with bed.running():
        preparing = asyncio.create_task(bed.ready(both))
        await eventually_async(lambda: len(driver.begun) == 2)
        driver.go_on.set()
        await preparing


async def test_claims_are_given_back_without_the_api_server(bed: Bed, fpga: str) -> None:
    first = claim("first", result(fpga), configs=(NAMED,))
    async with bed.running():
        await bed.ready(first)
        async with bed.api.away():
            await bed.prepare(first)  # of a kubelet that was restarted: it is answered from disk
            await bed.unprepare(first)
            assert bed.left == []
            assert "can't be reached" in (await bed.prepare(first))["first"].error


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
        await eventually_async(lambda: has_reserved(dra, "again"))
        driver.go_on.set()
        await again
    assert [each.afu_id for each in driver.programmed] == [NLB3]


def has_reserved(dra: Dra, name: str) -> bool:
    return any(each.claim.name == name for each in dra.parts.book.entries())


async def test_slow_programming_goes_on_after_the_call(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    first = claim("first", result(fpga), configs=(NAMED,))
    bed.api.put(first)
    driver.go_on.clear()
    async with bed.running():
        preparing = asyncio.create_task(bed.prepare(first))
        await eventually_async(lambda: driver.begun)
        preparing.cancel()  # as after 45 s
        await asyncio.wait([preparing])
        driver.go_on.set()
        await eventually_async(lambda: len(driver.programmed) == 1)
        await bed.ready(first)
    assert [each.afu_id for each in driver.programmed] == [NLB3]


@pytest.mark.soak
async def test_a_call_ends_before_the_kubelet_gives_up(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    """Programming that takes a minute: an error that says so, then the claim is ready."""
    first = claim("first", result(fpga), configs=(NAMED,))
    driver.go_on.clear()
    async with bed.running():
        error = await bed.refused(first)  # within 45 s
        assert "no answer within 36 s; the work goes on, and Kubernetes retries" in error
        assert "hangs" in await bed.refused(first)
        driver.go_on.set()

        async def is_ready() -> bool:
            return not (await bed.prepare(first))["first"].error

        await eventually_async(is_ready)
    assert [each.afu_id for each in driver.programmed] == [NLB3]


async def test_what_was_prepared_outlives_the_process(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    first = claim("first", result(fpga), configs=(NAMED,))
    async with bed.running():
        done = await bed.ready(first)
    async with bed.running() as dra:
        assert dra.parts.book.functions() == {fpga: NLB3}
        assert (await bed.prepare(first))["first"] == done
        await bed.unprepare(first)
        await bed.unprepare(first)
    assert bed.left == []
    assert len(driver.programmed) == 1


async def test_a_committed_claim_has_the_devices_that_it_had(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    first = claim("first", result(fpga), configs=(config(NEVER),))
    async with bed.running() as dra:
        await bed.ready(first)
        book, uid = dra.parts.book, "uid-of-first"
        entry = book.find(uid)
        assert entry is not None
        # As after the card's driver was loaded again, which numbers regions anew.
        old = [msgspec.structs.replace(each, ids=("dfl-fme.7",)) for each in entry.wants]
        book.commit(entry.claim, tuple(old), entry.carried)
        await bed.ready(first)
        assert book.find(uid) == entry
        moved = claim("first", result("fpga-other"), configs=(config(NEVER),))
        assert f"still has {fpga}" in await bed.refused(moved)
        assert book.find(uid) == entry
    assert driver.programmed == []


async def test_a_claim_follows_its_device_after_a_scan(bed: Bed, fpga: str) -> None:
    first = claim("first", result(fpga), configs=(config(NEVER),))
    async with bed.running() as dra:
        await bed.ready(first)
        book, (file,) = dra.parts.book, (bed.folder / "cdi").iterdir()
        entry, content = book.find("uid-of-first"), file.read_bytes()
        assert entry is not None
        file.write_text("of another node")
        old = [msgspec.structs.replace(each, ids=("dfl-fme.7",)) for each in entry.wants]
        book.commit(entry.claim, tuple(old), entry.carried)
        await eventually_async(lambda: book.find("uid-of-first") == entry)
        assert file.read_bytes() == content


async def test_what_a_workload_for_development_has_loaded_stays_unknown(
    bed: Bed, fpga: str
) -> None:
    async with bed.running():
        await bed.ready(claim("first", result(fpga), configs=(config(DEVELOP),)))
    (bed.folder / "k/device-plugins/accelbind/mode").unlink()
    async with bed.running() as dra:
        assert (await dra.parts.regions.read()).unfinished == {"dfl-port.0"}


async def test_a_deleted_socket_is_made_again(bed: Bed, fpga: str) -> None:
    async with bed.running() as dra:
        await bed.register()
        assert fpga in dra.parts.devices.by_name
        socket = dra.parts.registration.socket
        socket.unlink()
        await eventually_async(socket.exists)
        assert dra.parts.registration.error
        await bed.register(accept=False)
        assert dra.parts.registration.error == "no"
        await bed.register()
        assert dra.parts.registration.error == ""
