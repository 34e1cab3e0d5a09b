import itertools
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.devices.model import Device
from services.devices.preference import prefer

RESOURCE = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"

Devices = dict[str, Device]


def device(number: int, card: str = "region0", node: int | None = 0) -> Device:
    return Device(id=f"dfl-port.{number}", resource=RESOURCE, card=card, numa_node=node)


def rack(*cards: tuple[int | None, int]) -> Devices:
    """Cards, each a NUMA node and a number of ports; ports are numbered through."""
    numbers = itertools.count()
    devices = [
        device(next(numbers), f"region{index}", node)
        for index, (node, ports) in enumerate(cards)
        for _ in range(ports)
    ]
    return {each.id: each for each in devices}


def ids(*numbers: int) -> list[str]:
    return [f"dfl-port.{number}" for number in numbers]


def fewest(
    devices: Devices,
    available: Collection[str],
    must: Collection[str],
    size: int,
    of: Callable[[Device], object],
) -> int:
    """On how many nodes or cards the best of all possible sets is."""
    others = sorted(set(available) - set(must))
    return min(
        len({of(devices[key]) for key in [*must, *added]})
        for added in itertools.combinations(others, size - len(must))
    )


@st.composite
def requests(draw: st.DrawFn, most: int = 9) -> tuple[Devices, list[str], list[str], int]:
    """Devices in cards on nodes, some offered, some of those to be included, and a size."""
    nodes = st.sampled_from([None, 0, 1, 2])
    cards = draw(st.lists(st.tuples(nodes, st.integers(1, 4)), min_size=1, max_size=most))
    devices = {}
    for number, (node, card) in enumerate(
        (node, index) for index, (node, ports) in enumerate(cards) for _ in range(ports)
    ):
        if number == most:
            break
        strayed = draw(st.integers(0, 9)) == 0  # a card may be on several nodes
        at = draw(nodes) if strayed else node
        each = device(number, f"region{card}", at)
        devices[each.id] = each
    available = draw(st.lists(st.sampled_from(sorted(devices)), min_size=1, unique=True))
    must = draw(st.lists(st.sampled_from(available), unique=True))
    size = draw(st.integers(max(1, len(must)), len(available)))
    return devices, available, must, size


@given(requests())
@settings(max_examples=100, deadline=None)
def test_no_other_set_is_on_fewer_numa_nodes_nor_on_one_of_these_on_fewer_cards(
    request: tuple[Devices, list[str], list[str], int],
) -> None:
    devices, available, must, size = request
    chosen = prefer(devices, available, must, size)
    assert prefer(dict(reversed(devices.items())), available[::-1], must, size) == chosen
    assert len(set(chosen)) == len(chosen) == size
    assert set(must) <= set(chosen) <= set(available)
    nodes = {devices[key].numa_node for key in chosen}
    assert len(nodes) == fewest(devices, available, must, size, lambda each: each.numa_node)
    devices = {key: replace(each, numa_node=0) for key, each in devices.items()}
    cards = {devices[key].card for key in prefer(devices, available, must, size)}
    assert len(cards) == fewest(devices, available, must, size, lambda each: each.card)


@pytest.mark.parametrize(
    ("cards", "gone", "size", "expected"),
    [
        pytest.param([(0, 2), (0, 2)], [2], 1, [3], id="the card that fits best"),
        pytest.param([(0, 1), (0, 1), (1, 1)], [], 1, [2], id="the node that fits best"),
        pytest.param([(0, 12)], [], 11, [*range(11)], id="ids sort by number"),
    ],
)
def test_the_smallest_that_is_enough_comes_first_and_ids_sort_by_number(
    cards: list[tuple[int | None, int]], gone: list[int], size: int, expected: list[int]
) -> None:
    devices = rack(*cards)
    available = [key for key in devices if key not in ids(*gone)]
    assert prefer(devices, available, (), size) == ids(*expected)


@pytest.mark.parametrize(
    ("must", "size", "chosen"),
    [
        ("", 1, "a-r0"),
        ("", 2, "a-r0 b-r0"),
        ("", 3, "a-r0 a-r1 b-r0"),
        ("a-r1", 2, "a-r1 b-r0"),
        ("", 4, "a-r0 a-r1 b-r0 b-r1"),
        ("", 9, "a-r0 a-r1 b-r0 b-r1"),
    ],
)
def test_distinct_devices_come_before_replicas_of_one(must: str, size: int, chosen: str) -> None:
    devices = {
        f"{card}-r{number}": Device(f"{card}-r{number}", "d/r", type="t", claims=frozenset({card}))
        for card in "ab"
        for number in range(2)
    }
    assert prefer(devices, devices, must.split(), size) == chosen.split()
