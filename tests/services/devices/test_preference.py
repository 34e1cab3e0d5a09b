import itertools

import pytest

from services.devices.allocation import prefer
from services.devices.model import Device

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


@pytest.mark.parametrize(
    ("cards", "gone", "size", "expected"),
    [
        pytest.param([(0, 1), (1, 2)], [], 2, [1, 2], id="one node before two"),
        pytest.param([(0, 1), (0, 1), (0, 2)], [], 2, [2, 3], id="one card before two"),
        pytest.param([(0, 1), (1, 1), (1, 1)], [], 2, [1, 2], id="two cards before two nodes"),
        pytest.param([(None, 2), (0, 1), (1, 1)], [1], 3, [0, 2, 3], id="all that is there"),
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
