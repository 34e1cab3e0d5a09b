from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.devices.model import Fme, Inventory
from services.process.errors import ExternalFailure, NotAllowed
from services.process.problem import Problem
from services.process.text import plain
from services.programming.assignment import Region, RegionPlan, plan, regions_of
from tests.services.cards import INTERFACE, NLB0, NLB3, card, port, virtual

DMA = "0" * 31 + "1"
PROGRAM = "0123456789abcdef0123456789abcdef01234567"


def region(number: int, *functions: str, numbered: bool = True) -> Region:
    """A region whose ports show functions."""
    ports = tuple(
        port(f"dfl-port.{number}{n}", function, number=n if numbered else None)
        for n, function in enumerate(functions)
    )
    engine = Fme(f"dfl-fme.{number}", INTERFACE)
    return Region(card(number), engine, ports)


def planned(
    wanted: list[str], *regions: Region, contents: dict[str, str] | None = None
) -> tuple[RegionPlan, ...]:
    """The plan for a container; unless `contents` says otherwise, what ports show was recorded."""
    by_name = {each.name: each for each in regions}
    if contents is None:
        ports = [port for each in regions for port in each.ports]
        contents = {port.name: port.afu_id for port in ports if port.afu_id}
    return plan(wanted, list(by_name), by_name, contents, interface_id=INTERFACE, who="container x")


def kept(found: Iterable[RegionPlan]) -> dict[str, str]:
    return {each.port: each.function for one in found for each in one.kept}


def programmed(found: Iterable[RegionPlan]) -> dict[str, str]:
    return {each.port: each.function for one in found for each in one.programmed}


def test_a_card_with_an_engine_that_could_be_read_is_a_region() -> None:
    broken = replace(card(2), failure=Problem("card-hung", "it hangs"))
    found = regions_of(Inventory((card(0), card(1), broken)))
    assert list(found) == ["dfl-fme.0", "dfl-fme.1"]
    second = found["dfl-fme.1"]
    assert (second.card, second.ports) == (card(1), card(1).ports)
    assert (second.name, second.interface_id) == ("dfl-fme.1", INTERFACE)


def test_ports_on_virtual_functions_belong_to_the_engine_of_their_physical_one() -> None:
    physical = replace(card(0), ports=())
    split = virtual(physical, 1, port("dfl-port.7"))
    stray = virtual(card(3), 1, port("dfl-port.9"))
    found = regions_of(Inventory((split, physical, stray)))
    assert [each.name for each in found["dfl-fme.0"].ports] == ["dfl-port.7"]
    failure = Problem("card-hung", "it hangs")
    found = regions_of(Inventory((replace(split, ports=(), failure=failure), physical)))
    assert (found["dfl-fme.0"].ports, found["dfl-fme.0"].unread) == ((), (failure,))


@pytest.mark.parametrize(
    ("wanted", "regions", "work"),
    [
        ([NLB3], [(NLB0,)], {"dfl-port.00": NLB3}),
        ([NLB0], [("",)], {"dfl-port.00": NLB0}),  # nobody knows what is in it
        ([NLB0], [(NLB0, NLB0)], {}),
        ([NLB0], [(NLB0, NLB3)], {"dfl-port.01": NLB0}),
        ([NLB0], [(NLB3, DMA)], {"dfl-port.00": NLB0, "dfl-port.01": NLB0}),
        # A region keeps what it has, whatever the order.
        ([NLB0, NLB3], [(NLB3,), (NLB0,)], {}),
        ([NLB0, NLB3], [(NLB0,), (NLB0,)], {"dfl-port.10": NLB3}),
        # One with two functions leaves the other one to who has only that.
        ([NLB0, NLB3], [(NLB0, NLB3), (NLB0,)], {}),
        # A port of another region's function stays: the container wants it too.
        ([NLB0, NLB3], [(NLB0, NLB3), (NLB3,)], {}),
        # The port that must be programmed anyway gets the function that is missing.
        ([NLB0, NLB3], [(NLB0, DMA), (NLB0, NLB0)], {"dfl-port.01": NLB3}),
        ([NLB0, NLB3], [(NLB0, NLB0), (NLB0, DMA)], {"dfl-port.11": NLB3}),
        ([NLB0, NLB3], [(NLB0, NLB0), (NLB0, NLB0)], {"dfl-port.10": NLB3}),
        # A region beyond the functions gives nothing away either, and gets the last one.
        ([NLB0], [(NLB0, NLB0), (NLB0, DMA)], {"dfl-port.11": NLB0}),
        ([NLB0, NLB3], [(NLB0,), (NLB3,), (NLB0, DMA)], {"dfl-port.21": NLB0}),
        ([NLB0, NLB3], [(NLB0,), (NLB3,), (DMA,)], {"dfl-port.20": NLB3}),
    ],
)
def test_every_port_of_a_region_carries_a_function_that_its_container_wants(
    wanted: list[str], regions: list[tuple[str, ...]], work: dict[str, str]
) -> None:
    here = [region(number, *functions) for number, functions in enumerate(regions)]
    found = planned(wanted, *here)
    assert [each.region for each in found] == here
    assert programmed(found) == work
    shown = {port.name: port.afu_id for each in here for port in each.ports}
    assert kept(found) == {name: afu for name, afu in shown.items() if name not in work}
    names = {one.region for each in found for one in (*each.kept, *each.programmed)}
    assert names == {each.name for each in here}


@pytest.mark.parametrize(
    ("contents", "work"),
    [
        ({}, ["dfl-port.00", "dfl-port.01"]),
        ({"dfl-port.00": NLB0, "dfl-port.01": PROGRAM}, ["dfl-port.01"]),
        ({"dfl-port.00": NLB0, "dfl-port.01": NLB0}, []),
    ],
)
def test_only_what_was_recorded_counts_whatever_a_port_shows(
    contents: dict[str, str], work: list[str]
) -> None:
    found = planned([NLB0], region(0, NLB0, NLB0), contents=contents)
    assert list(programmed(found)) == work


def test_the_first_port_that_has_a_number_gets_what_no_port_carries() -> None:
    there = region(0, NLB0, NLB0)
    ports = (replace(there.ports[0], number=None), there.ports[1])
    other = region(1, NLB0, numbered=False)
    found = planned([NLB0, NLB3], other, replace(there, ports=ports))
    assert programmed(found) == {"dfl-port.01": NLB3}


def test_more_functions_than_regions_are_refused() -> None:
    words = "container x names 2 functions and was given 1 region: request as many regions as"
    with pytest.raises(NotAllowed, match=f"^{words} functions$"):
        planned([NLB0, NLB0], region(0, NLB0))


def test_a_region_that_is_gone_is_named() -> None:
    with pytest.raises(ExternalFailure, match=r"another name now, delete the pod$"):
        plan([NLB0], ["dfl-fme.9"], {}, {}, interface_id=INTERFACE, who="x")


@pytest.mark.parametrize(
    ("wanted", "there", "message"),
    [
        (
            [NLB0],
            region(0, NLB0, NLB3, numbered=False),
            (
                "port dfl-port.01 of region dfl-fme.0 must be programmed, since the container"
                " gets every port of the region and this one carries no function that it wants;"
                " its number can't be read, which programming needs"
            ),
        ),
        (
            [NLB3],
            region(0),
            "region dfl-fme.0 has no port whose number can be read, which programming needs",
        ),
        (
            [NLB0],
            replace(region(0, NLB0), unread=(Problem("card-hung", "x" * 400),)),
            (
                f"not every port of region dfl-fme.0 can be read: {plain('x' * 400, 300)}; the"
                " kubelet will try again"
            ),
        ),
        *(
            (
                [NLB3],
                replace(region(0, NLB0), engine=Fme("dfl-fme.0", interface)),
                (
                    f"region dfl-fme.0 should have interface id {INTERFACE} and has {now}:"
                    " another image was flashed, or its card is broken; delete the pod to get"
                    " another region"
                ),
            )
            for interface, now in ((NLB0, NLB0), ("", "none that can be read"))
        ),
    ],
)
def test_a_region_that_can_not_be_used_is_named(
    wanted: list[str], there: Region, message: str
) -> None:
    with pytest.raises(ExternalFailure) as raised:
        planned(wanted, there)
    assert str(raised.value) == message


@given(
    st.lists(
        st.lists(st.sampled_from([NLB0, NLB3, DMA, ""]), min_size=1, max_size=2),
        min_size=1,
        max_size=5,
    ),
    st.data(),
)
def test_the_work_is_the_least_possible(contents: list[list[str]], data: st.DataObject) -> None:
    regions = [region(n, *functions) for n, functions in enumerate(contents)]
    wanted = data.draw(
        st.lists(st.sampled_from([NLB0, NLB3, DMA]), min_size=len(regions), max_size=len(regions))
    )
    found = planned(wanted, *regions)
    least = min(
        sum(_work(function, here, wanted) for function, here in zip(order, contents, strict=True))
        for order in permutations(wanted)
    )
    assert len(programmed(found)) == least
    carried = [{one.function for one in (*each.kept, *each.programmed)} for each in found]
    assert set().union(*carried) <= set(wanted)
    assert any(
        all(function in here for function, here in zip(order, carried, strict=True))
        for order in permutations(wanted)
    )
    ports = sorted((*kept(found), *programmed(found)))
    assert ports == sorted(port.name for each in regions for port in each.ports)


def _work(function: str, here: list[str], wanted: list[str]) -> int:
    """How many ports must be programmed for a region to have a function and none unwanted."""
    foreign = sum(each not in wanted for each in here)
    return foreign or int(function not in here)
