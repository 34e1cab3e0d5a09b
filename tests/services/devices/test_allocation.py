import itertools
from dataclasses import replace

import pytest

from services.devices.allocation import ContainerAllocation, allocate, prefer
from services.devices.model import Device, DeviceNode, Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.process.errors import NotAllowed
from tests.services.cards import AF_NLB0, REGION, UNIT, advertise, card, port

VARIABLES = {
    AF_NLB0: "ACCELBIND_AF_CE4_D84_ZKIWK5JWXZOUBVYHCL4QITHCTCSKO8QT_J5DNOP5BAS",
    REGION: "ACCELBIND_REGION_CE48969398F05F33946D560708BE108A",
}


def tree(mode: PluginMode) -> AdvertisedResources:
    """Three cards on different functions, the last one with two ports."""
    pair = (port("dfl-port.2", number=0), port("dfl-port.3", number=1))
    return advertise(Inventory((card(0), card(1), card(2, *pair))), mode, units=4)


def nodes(*names: str) -> tuple[DeviceNode, ...]:
    return tuple(map(DeviceNode, names))


AF, REGION_MODE, DEVEL = PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL
UNITS, BDF = PluginMode.UNITS, PluginMode.BDF


@pytest.mark.parametrize(
    ("mode", "resource", "ids", "addresses", "names"),
    [
        (AF, AF_NLB0, "dfl-port.1 dfl-port.0", "5f:00.0 5e:00.0", "dfl-port.1 dfl-port.0"),
        (AF, AF_NLB0, "dfl-port.2 dfl-port.3", "60:00.0 60:00.0", "dfl-port.2 dfl-port.3"),
        (
            *(REGION_MODE, REGION, "dfl-fme.2 dfl-fme.0", "60:00.0 5e:00.0"),
            "dfl-port.2 dfl-port.3 dfl-port.0",
        ),
        (DEVEL, REGION, "dfl-fme.0", "5e:00.0", "dfl-port.0 dfl-fme.0"),
        (UNITS, UNIT, "3 0 3 1", "", ""),
        (BDF, UNIT, "5f:00.0 60:00.0-1", "", "dfl-port.1 dfl-port.3"),
    ],
)
def test_a_container_gets_the_nodes_and_variables_of_its_devices(
    mode: PluginMode, resource: str, ids: str, addresses: str, names: str
) -> None:
    listed = ",".join(f"0000:{each}" for each in addresses.split())
    once = ",".join(dict.fromkeys(ids.split()))
    units = dict.fromkeys(("ACCELERATOR_UNITS", "ACCELERATOR_DEVICES"), once)
    envs = {VARIABLES[resource]: listed} if addresses else units
    made = allocate(tree(mode).resources[resource], ids.split())
    assert made == ContainerAllocation(envs=envs, nodes=nodes(*names.split()), cdi_devices=())


def test_two_devices_whose_nodes_would_have_one_path_are_refused() -> None:
    devices = {
        f"modem-{n}": Device(f"modem-{n}", "r", nodes=(DeviceNode(f"ttyUSB{n}", inside="modem0"),))
        for n in range(2)
    }
    shares = devices | {"modem-0-r1": replace(devices["modem-0"], id="modem-0-r1")}
    assert allocate(shares, ["modem-0", "modem-0-r1"]).nodes == devices["modem-0"].nodes
    with pytest.raises(NotAllowed, match=r"modem-0 and modem-1 together: .* /dev/modem0 in the"):
        allocate(devices, [*devices])


def test_a_variable_has_a_value_for_each_device_in_their_order_and_a_fixed_one_its_value() -> None:
    def device(key: str, **envs: str) -> Device:
        fixed = (("FIXED", "a,b"),)
        return Device(key, AF_NLB0, envs=tuple(envs.items()), fixed_envs=fixed)

    made = [device("0", NODE="1", ID="x"), device("1", NODE="0"), device("2", NODE="1", ID="z")]
    answer = allocate({each.id: each for each in made}, ["2", "1", "0"])
    assert answer.envs == {"NODE": "1,0,1", "ID": "z,,x", "FIXED": "a,b"}


def test_an_unknown_id_is_refused_with_the_ids_there_are() -> None:
    with pytest.raises(NotAllowed) as refused:
        allocate(tree(PluginMode.REGION).resources[REGION], ["dfl-fme.1", "dfl-fme.9", "?"])
    has = "dfl-fme.0, dfl-fme.1, dfl-fme.2"
    assert str(refused.value) == f"no device 'dfl-fme.9', '?': the resource has {has} now"


# Which devices are preferred


def rack(*cards: tuple[int | None, int]) -> dict[str, Device]:
    """Cards, each a NUMA node and a number of ports; ports are numbered through."""
    numbers = itertools.count()
    devices = [
        Device(f"dfl-port.{next(numbers)}", REGION, card=f"region{index}", numa_node=node)
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
        ("", 2, "a-r0 b-r0"),
        ("", 3, "a-r0 a-r1 b-r0"),
        ("a-r1", 2, "a-r1 b-r0"),
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
