"""The driver on synthetic cards: what the kubelet gets for claims of each kind."""

import asyncio
import socket
from typing import Any

import pytest

from plugin.dra.book import ClaimEntry
from plugin.dra.claim_reports import problems_of
from plugin.dra.claims import ClaimRef
from plugin.dra.driver import HEALTH_SECONDS
from plugin.dra.wants import Kind, Want
from services.devices.dra import DraDevice, fpga_name
from services.devices.model import Device
from services.kubelet import dra_health_pb2 as health
from services.kubelet.dra_health_pb2_grpc import DRAResourceHealthStub
from services.kubelet.sockets import dial
from services.process.problem import Problem
from services.programming.host_state import HostState
from simulator.cards import NLB0, NLB3, CardSpec
from simulator.driver import DriverStandIn
from tests.plugin.dra.support import (
    DEVELOP,
    NEVER,
    Bed,
    claim,
    config,
    mapping,
    parts,
    region,
    result,
)
from tests.support import eventually_async


@pytest.fixture
def fpga(bed: Bed) -> str:
    """The name of a card's only region."""
    return bed.add_fpga()


async def test_it_registers_as_the_kubelet_expects(bed: Bed, fpga: str) -> None:
    endpoint = bed.folder / "k/plugins/accelbind.dev/dra.sock"
    endpoint.parent.mkdir(parents=True)
    for left in (endpoint, bed.folder / "k/plugins_registry/.accelbind.dev-reg.sock"):
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(left))
    async with bed.running() as dra:
        info = await bed.register()
        assert (info.type, info.name) == ("DRAPlugin", "accelbind.dev")
        assert info.endpoint == str(endpoint)
        assert info.supported_versions[0] == "v1.DRAPlugin"
        assert parts(dra).driver.error == ""
        assert fpga in parts(dra).state.ledger.by_name
        assert '"source":"dra"' in str((await dra.probes.devices())[1])
    assert list((bed.folder / "k/plugins_registry").iterdir()) == []
    assert list((bed.folder / "k/plugins/accelbind.dev").iterdir()) == []


async def test_a_deleted_socket_is_made_again(bed: Bed) -> None:
    async with bed.running() as dra:
        driver = parts(dra).driver
        await bed.register()
        driver.socket.unlink()
        await eventually_async(driver.socket.exists)
        assert driver.error
        await bed.register(accept=False)
        assert driver.error == "no"
        await bed.register()
        assert driver.error == ""


async def test_health_that_changes_while_it_is_sent_is_sent_again(bed: Bed) -> None:
    address = bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    context: Any = None
    async with bed.running() as dra:
        stream = parts(dra).driver.NodeWatchResources(health.NodeWatchResourcesRequest(), context)
        assert len((await anext(stream)).devices) == 1
        bed.rack.remove_card(address)
        await eventually_async(lambda: not parts(dra).state.ledger.by_name)
        async with asyncio.timeout(HEALTH_SECONDS / 2):
            assert len((await anext(stream)).devices) == 0


@pytest.mark.parametrize("how", [{}, {"adminAccess": True}])
async def test_a_device_that_is_unplugged_under_a_claim_is_unhealthy_until_it_is_given_back(
    bed: Bed, how: dict[str, Any]
) -> None:
    address = bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    name = fpga_name(address)
    each = claim("c", result(name, **how), configs=() if how else (config(NEVER),))
    request = health.NodeWatchResourcesRequest()
    async with bed.running() as dra:
        await bed.ready(each)
        async with dial(parts(dra).driver.endpoint) as channel:
            stream = aiter(DRAResourceHealthStub(channel).NodeWatchResources(request, timeout=60))
            assert healths(await anext(stream)) == {name: (health.HEALTHY, "")}
            bed.rack.remove_card(address)
            text = f"claim ns/c has {name}, and the node no longer has it"
            async with asyncio.timeout(HEALTH_SECONDS / 2):
                # A scan may meet a card of which only a part is gone.
                while healths(await anext(stream)) != {name: (health.UNHEALTHY, text)}:
                    pass
    endpoint = bed.folder / "k/plugins/accelbind.dev/dra.sock"
    async with bed.running(), dial(endpoint) as channel:  # the next process knows it too
        stream = aiter(DRAResourceHealthStub(channel).NodeWatchResources(request, timeout=60))
        assert healths(await anext(stream)) == {name: (health.UNHEALTHY, text)}
        await bed.unprepare(each)
        async with asyncio.timeout(HEALTH_SECONDS / 2):
            assert healths(await anext(stream)) == {}


def healths(news: health.NodeWatchResourcesResponse) -> dict[str, tuple[int, str]]:
    return {each.device.device_name: (each.health, each.message) for each in news.devices}


def test_health_is_that_of_the_hardware_if_the_name_of_its_type_has_changed() -> None:
    worn = Problem("port-errors", "worn out")
    new = DraDevice(
        "b-x", Device("x", "b.dev/b", reasons=(worn,), type="b", claims=frozenset({"4:1"})), {}
    )
    want = Want("fpga", Kind.PLAIN, ("a-x",), ("x",), (("4:1",),), "a.dev/a", "a.dev/a")
    entry = ClaimEntry(ClaimRef("ns", "c", "uid"), "boot", (want,))
    assert problems_of({"b-x": new}, [entry]) == {"b-x": (worn,), "a-x": (worn,)}


async def test_the_content_of_a_port_counts_once_nobody_works_on_its_card(
    bed: Bed, fpga: str
) -> None:
    each = claim("c", result(fpga), configs=(config(NEVER),))
    async with bed.running() as dra:
        card = str(parts(dra).state.ledger.by_name[fpga].attributes["card"])
        with HostState(bed.folder / "state").lock_card(card, seconds=0):
            preparing = asyncio.create_task(bed.ready(each))
            await eventually_async(lambda: f"card {card}" in dra.process.calls.busy)
            assert not preparing.done()
        await preparing


async def test_prepared_claims_outlive_the_process_also_if_the_next_one_programs_nothing(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    bed.install(NLB0, NLB3)
    for name, afu in (("nlb0", NLB0), ("nlb3", NLB3)):
        bed.api.put(mapping(name, afu))
    one, other = (
        claim(name, result(fpga), configs=(config({"mapping": name}, "FromClaim"),))
        for name in ("nlb3", "nlb0")
    )
    async with bed.running():
        done = await bed.ready(one)
    async with bed.running(programming="none") as dra:
        assert parts(dra).book.committed() == {fpga}
        assert await bed.ready(one) == done
        await bed.unprepare(one)
        await bed.unprepare(one)
        assert bed.left == []
        await bed.ready(one)
        await bed.unprepare(one)
        assert f"instead of AFU {NLB0}" in await bed.refused(other)
    assert [each.afu_id for each in driver.programmed] == [NLB3]


async def test_programming_is_an_event_of_the_pod(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    bed.api.put({"kind": "Namespace", "metadata": {"name": "ns"}})
    bed.api.put(mapping("nlb3", NLB3))
    named = config({"mapping": "nlb3"}, "FromClaim")
    absent = config({"afu": NLB3, "program": "Never"})

    def of_pod(name: str, configuration: dict[str, Any]) -> dict[str, Any]:
        made = claim(name, result(fpga), configs=(configuration,))
        made["status"]["reservedFor"] = [{"resource": "pods", "name": f"pod-{name}", "uid": name}]
        return made

    def events() -> list[tuple[str, str]]:
        found = bed.api.objects("Event")
        return sorted((each["involvedObject"]["name"], each["reason"]) for each in found)

    never, missing = of_pod("never", absent), of_pod("missing", named)
    async with bed.running():
        await bed.refused(never)
        await bed.unprepare(never)
        assert "accelbind bitstream install" in await bed.refused(missing)
        bed.install(NLB3)
        await bed.ready(missing)
        expected = [("pod-missing", "Programmed"), ("pod-missing", "ProgrammingFailed")]
        await eventually_async(lambda: len(events()) >= 2)
        assert events() == expected, "nothing was to be programmed for the other one"
    assert len(driver.programmed) == 1


async def test_a_claim_for_development_makes_the_content_unknown(
    bed: Bed, fpga: str, driver: DriverStandIn
) -> None:
    developing = claim("d", result(fpga), configs=(config(DEVELOP),))
    never = claim("n", result(fpga), configs=(config(NEVER),))
    async with bed.running(enforce_mappings="auto"):
        assert "no FpgaRegion in namespace ns" in await bed.refused(developing)
        bed.api.put(region("mine"))
        await bed.ready(developing)
        nodes = next(iter(bed.cdi(developing).values()))["deviceNodes"]
        assert [each["path"] for each in nodes] == ["/dev/dfl-port.0", "/dev/dfl-fme.0"]
        await bed.unprepare(developing)
        bed.api.put(mapping("loaded", mode="af"))
        assert "programming it has not succeeded" in await bed.refused(never)
        bed.install(NLB0)
        bed.api.put(mapping("nlb0"))
        named = config({"mapping": "nlb0"}, "FromClaim")
        programmed = claim("p", result(fpga), configs=(named,))
        await bed.unprepare(never)
        await bed.ready(programmed)
        await bed.unprepare(programmed)
        await bed.ready(never)
    assert [each.afu_id for each in driver.programmed] == [NLB0]
