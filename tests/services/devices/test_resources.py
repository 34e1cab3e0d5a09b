from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.devices.model import (
    Card,
    Device,
    DeviceNode,
    Inventory,
    PluginMode,
    Port,
    Problem,
)
from services.devices.resources import AdvertisedResources, advertise, nothing_advertised
from tests.services.cards import (
    AF_NLB0,
    BAD,
    INTERFACE,
    NLB0,
    NLB3,
    REGION,
    UNIT,
    card,
    function,
    port,
    virtual,
)

AF, UNITS, BDF = PluginMode.AF, PluginMode.UNITS, PluginMode.BDF
REGIONS = (PluginMode.REGION, PluginMode.REGIONDEVEL)
CARD_MODES = (AF, *REGIONS, BDF)
OTHER = "bfac4d851ee856fe8c95865ce1bbaa2d"
AF_OTHER = "fpga.intel.com/af-bfa.d84.v6xNhR7oVv6MlYZc4buqLdhCTcSko8QT-J5DNoP5BAs"
AF_NLB3 = "fpga.intel.com/af-ce4.f7d.zkiWk5jwXzOUbVYHCL4QivffQFy9es9yIvFEsLk6zRg"
AFU_GONE = Problem("afu-id-missing", "dfl-port.0 has no afu_id")
AFU_EMPTY = Problem("afu-id-empty", "afu_id of dfl-port.0 is empty")
ID_GONE = Problem("interface-id-missing", "dfl-fme.0 has no compat_id")
ID_EMPTY = Problem("interface-id-empty", "compat_id of dfl-fme.0 is empty")
UNREADABLE = Problem("card-unreadable", "region0 can't be listed")


def tree(
    mode: PluginMode, *cards: Card, after: AdvertisedResources | None = None
) -> AdvertisedResources:
    return advertise(Inventory(cards), mode, previous=after.memory if after else None)


def ids(made: AdvertisedResources) -> dict[str, list[str]]:
    return {resource: list(devices) for resource, devices in made.resources.items()}


def reasons(device: Device) -> list[str]:
    return [problem.reason for problem in device.reasons]


def only(made: AdvertisedResources) -> Device:
    (device,) = made.devices()
    return device


def without_engine(of: Card) -> Card:
    return replace(of, fme=None)


def unreadable(of: Card) -> Card:
    return replace(of, fme=None, ports=(), failure=UNREADABLE)


def with_engine_problem(of: Card, *problems: Problem, interface: str = INTERFACE) -> Card:
    assert of.fme is not None
    return replace(of, fme=replace(of.fme, problems=problems, interface_id=interface))


# What each mode offers


def test_in_af_mode_a_device_is_a_port_under_the_function_in_it() -> None:
    made = tree(AF, card(0), card(1, port("dfl-port.1", NLB3)))
    assert ids(made) == {AF_NLB0: ["dfl-port.0"], AF_NLB3: ["dfl-port.1"]}
    assert made.resources[AF_NLB3]["dfl-port.1"] == Device(
        id="dfl-port.1",
        resource=AF_NLB3,
        healthy=True,
        nodes=(DeviceNode("dfl-port.1", "rw"),),
        numa_node=1,
        pci_addresses=("0000:5f:00.0",),
        card="region1",
        interface_id=INTERFACE,
        afu_ids=(NLB3,),
    )
    assert made.not_offered == ()


@pytest.mark.parametrize("mode", REGIONS)
def test_in_the_region_modes_a_device_is_an_engine(mode: PluginMode) -> None:
    made = tree(mode, card(0, port("dfl-port.0"), port("dfl-port.1", NLB3, number=1)), card(2))
    assert ids(made) == {REGION: ["dfl-fme.0", "dfl-fme.2"]}
    engine = (DeviceNode("dfl-fme.0"),) if mode is PluginMode.REGIONDEVEL else ()
    assert made.resources[REGION]["dfl-fme.0"] == Device(
        id="dfl-fme.0",
        resource=REGION,
        healthy=True,
        nodes=(DeviceNode("dfl-port.0"), DeviceNode("dfl-port.1"), *engine),
        numa_node=0,
        pci_addresses=("0000:5e:00.0",),
        card="region0",
        interface_id=INTERFACE,
        afu_ids=(NLB0, NLB3),
    )


def test_in_bdf_mode_a_device_is_a_port_named_by_its_function() -> None:
    made = tree(BDF, card(0), card(1, pci=function("0001:5f:00.0", numa=None)))
    assert ids(made) == {UNIT: ["5e:00.0", "0001:5f:00.0"]}
    assert made.resources[UNIT]["5e:00.0"].nodes == (DeviceNode("dfl-port.0"),)
    assert made.resources[UNIT]["5e:00.0"].pci_addresses == ("0000:5e:00.0",)
    assert made.resources[UNIT]["0001:5f:00.0"].numa_node is None


def test_in_bdf_mode_further_ports_of_a_function_are_told_apart_by_number() -> None:
    three = (
        port("dfl-port.4", number=0),
        port("dfl-port.5", number=3),
        port("dfl-port.6", number=None),
    )
    made = tree(BDF, card(0, *three))
    assert ids(made) == {UNIT: ["5e:00.0", "5e:00.0-3", "5e:00.0-2"]}


def unit_nodes(made: AdvertisedResources) -> dict[str, str]:
    return {key: device.nodes[0].name for key, device in made.resources[UNIT].items()}


def test_in_bdf_mode_a_port_keeps_its_id_whatever_becomes_of_the_others_of_its_function() -> None:
    first, second = port("dfl-port.4", number=0), port("dfl-port.5", number=1)
    both = {"5e:00.0": "dfl-port.4", "5e:00.0-1": "dfl-port.5"}
    made = tree(BDF, card(0, first, second))
    assert unit_nodes(made) == both

    numberless = replace(first, number=None)
    made = tree(BDF, card(0, second, numberless), after=made)
    assert unit_nodes(made) == both
    made = tree(BDF, unreadable(card(0)), after=made)
    assert unit_nodes(made) == both

    made = tree(BDF, card(0, second), after=made)
    assert unit_nodes(made) == {"5e:00.0-1": "dfl-port.5"}
    made = tree(BDF, card(0, second, port("dfl-port.6", number=2)), after=made)
    assert unit_nodes(made) == {"5e:00.0-1": "dfl-port.5", "5e:00.0-2": "dfl-port.6"}
    made = tree(BDF, card(0, first, second, port("dfl-port.6", number=2)), after=made)
    assert unit_nodes(made) == both | {"5e:00.0-2": "dfl-port.6"}


def test_in_bdf_mode_a_new_port_never_gets_the_id_of_another() -> None:
    alone = tree(BDF, card(0, port("dfl-port.5", number=1)))
    made = tree(BDF, card(0, port("dfl-port.4"), port("dfl-port.5", number=1)), after=alone)
    assert unit_nodes(made) == {"5e:00.0-1": "dfl-port.4", "5e:00.0": "dfl-port.5"}
    assert made.not_offered == ()
    three = (port("dfl-port.4"), port("dfl-port.5", number=1), port("dfl-port.6", number=1))
    assert len(unit_nodes(tree(BDF, card(0, *three), after=made))) == 3


def test_in_bdf_mode_a_port_without_pci_function_is_not_offered() -> None:
    bare = replace(card(0), pci=None, ports=(port("dfl-port.0"), port("dfl-port.1", number=1)))
    made = tree(BDF, bare)
    assert made.resources == {}
    assert [(each.id, each.reasons, each.healthy, each.resource) for each in made.not_offered] == [
        (
            name,
            (Problem("no-pci-address", f"{name} is on no PCI function that could name it"),),
            False,
            "",
        )
        for name in ("dfl-port.0", "dfl-port.1")
    ]


def test_a_card_without_pci_function_is_offered_in_the_other_modes() -> None:
    bare = replace(card(0), pci=None, ports=(port("dfl-port.0"),))
    for mode, resource in ((AF, AF_NLB0), (PluginMode.REGIONDEVEL, REGION)):
        device = only(tree(mode, bare))
        assert (device.resource, device.pci_addresses, device.numa_node) == (resource, (), None)
        assert device.healthy


def test_two_cards_without_pci_function_are_not_related() -> None:
    first = replace(card(0), pci=None, ports=(port("dfl-port.0"),))
    second = replace(card(1), pci=None, ports=(port("dfl-port.1"),))
    made = tree(PluginMode.REGION, first, second)
    assert [device.nodes for device in made.devices()] == [
        (DeviceNode("dfl-port.0"),),
        (DeviceNode("dfl-port.1"),),
    ]


def test_units_need_no_card() -> None:
    made = advertise(Inventory(), UNITS)
    assert ids(made) == {UNIT: [str(number) for number in range(40)]}
    assert ids(advertise(Inventory((card(0),)), UNITS, units=2)) == {UNIT: ["0", "1"]}
    assert made.resources[UNIT]["7"] == Device("7", UNIT, healthy=True)
    assert advertise(Inventory(), UNITS, units=0).resources == {}
    assert made.memory.mode is UNITS


@pytest.mark.parametrize("mode", CARD_MODES)
def test_no_card_is_no_resource(mode: PluginMode) -> None:
    assert tree(mode) == nothing_advertised(mode)


def test_both_drivers_share_a_resource() -> None:
    opae = replace(card(1, port("intel-fpga-port.0")), driver="opae", name="intel-fpga-dev.0")
    assert ids(tree(AF, card(0), opae)) == {AF_NLB0: ["dfl-port.0", "intel-fpga-port.0"]}


# Virtual functions


def test_ports_on_virtual_functions_have_the_engine_of_their_physical_function() -> None:
    physical = card(0)
    cards = (
        physical,
        virtual(physical, 1, port("dfl-port.1", number=1)),
        virtual(physical, 2, port("dfl-port.2", number=2)),
    )
    made = tree(AF, *cards)
    assert ids(made) == {AF_NLB0: ["dfl-port.0", "dfl-port.1", "dfl-port.2"]}
    on_virtual = made.resources[AF_NLB0]["dfl-port.1"]
    assert on_virtual.pci_addresses == ("0000:5e:00.1",)
    assert on_virtual.card == "region0"
    assert on_virtual.healthy
    assert ids(tree(BDF, *cards)) == {UNIT: ["5e:00.0", "5e:00.1", "5e:00.2"]}


@pytest.mark.parametrize("mode", REGIONS)
def test_a_region_has_the_ports_of_its_virtual_functions(mode: PluginMode) -> None:
    physical = replace(card(0), ports=())
    cards = (
        virtual(physical, 1, port("dfl-port.1", number=1)),
        physical,
        virtual(physical, 2, port("dfl-port.2", NLB3, number=2)),
    )
    made = tree(mode, *cards)
    device = only(made)
    develops = mode is PluginMode.REGIONDEVEL
    names = ["dfl-port.1", "dfl-port.2", "dfl-fme.0"][: 3 if develops else 2]
    assert [node.name for node in device.nodes] == names
    addresses = ("0000:5e:00.1", "0000:5e:00.2", "0000:5e:00.0")
    assert device.pci_addresses == addresses[: 3 if develops else 2]
    assert device.afu_ids == (NLB0, NLB3)
    assert device.healthy
    assert made.not_offered == ()
    alone = only(tree(mode, *cards[:2]))
    assert [node.name for node in alone.nodes][:1] == ["dfl-port.1"]
    assert alone.resource == REGION


@pytest.mark.parametrize("mode", REGIONS)
def test_a_region_is_unhealthy_while_a_virtual_function_of_it_can_not_be_read(
    mode: PluginMode,
) -> None:
    physical = card(0)
    lost = unreadable(virtual(physical, 1, port("dfl-port.1")))
    device = only(tree(mode, physical, lost))
    assert reasons(device) == ["card-unreadable"]
    assert not device.healthy


@pytest.mark.parametrize("mode", [AF, *REGIONS])
def test_a_virtual_function_without_its_physical_one_offers_nothing_and_says_so(
    mode: PluginMode,
) -> None:
    orphan = virtual(card(0), 1, port("dfl-port.1"))
    made = tree(mode, orphan, card(1))
    assert [device.card for device in made.devices()] == ["region1"]
    (not_offered,) = made.not_offered
    assert (not_offered.id, not_offered.resource, not_offered.healthy) == ("dfl-port.1", "", False)
    assert not_offered.reasons == (
        Problem(
            "no-fme",
            "dfl-port.1 can't be programmed or named: "
            "its physical function 0000:5e:00.0 has no FME",
        ),
    )


def test_a_virtual_function_whose_physical_one_can_not_be_read_says_why() -> None:
    physical = card(0)
    split = virtual(physical, 1, port("dfl-port.1", number=1))
    good = tree(AF, physical, split)
    bad = tree(AF, unreadable(physical), split, after=good)
    assert ids(bad) == {AF_NLB0: ["dfl-port.1", "dfl-port.0"]}
    assert [device.reasons for device in bad.devices()] == [(UNREADABLE,), (UNREADABLE,)]
    elsewhere = unreadable(card(3))
    assert reasons(tree(AF, elsewhere, split).not_offered[0]) == ["no-fme"]
    nowhere = replace(unreadable(physical), pci=None)
    bare = Card("dfl", "region9", None, None, (port("dfl-port.9"),))
    assert reasons(tree(AF, nowhere, bare).not_offered[0]) == ["no-fme"]


def test_an_engine_on_a_virtual_function_is_its_own() -> None:
    odd = card(1, pci=function("0000:5e:00.1", physfn="0000:5e:00.0"))
    made = tree(PluginMode.REGION, card(0), odd)
    assert ids(made) == {REGION: ["dfl-fme.0", "dfl-fme.1"]}
    assert [len(device.nodes) for device in made.devices()] == [1, 1]
    other = card(1, pci=odd.pci, interface=OTHER)
    assert ids(tree(AF, card(0), other)) == {AF_NLB0: ["dfl-port.0"], AF_OTHER: ["dfl-port.1"]}


def test_a_card_without_engine_and_without_function_says_what_is_missing() -> None:
    bare = Card("dfl", "region0", None, None, (port("dfl-port.0"),))
    (not_offered,) = tree(AF, bare).not_offered
    message = "dfl-port.0 can't be programmed or named: its card has no FME"
    assert not_offered.reasons == (Problem("no-fme", message),)
    assert (not_offered.interface_id, not_offered.card) == ("", "region0")


# Health


@pytest.mark.parametrize("mode", CARD_MODES)
def test_a_problem_of_an_engine_is_one_of_each_of_its_ports(mode: PluginMode) -> None:
    broken = with_engine_problem(card(0, port("dfl-port.0"), port("dfl-port.1", number=1)), BAD)
    made = tree(mode, broken, card(2))
    sick = [device for device in made.devices() if device.card == "region0"]
    assert sick
    assert all(device.reasons == (BAD,) and not device.healthy for device in sick)
    assert [device.healthy for device in made.devices() if device.card == "region2"] == [True]


@pytest.mark.parametrize("mode", [AF, BDF])
def test_a_problem_of_a_port_is_its_own(mode: PluginMode) -> None:
    made = tree(mode, card(0, port("dfl-port.0", NLB0, BAD), port("dfl-port.1", number=1)))
    assert [(device.healthy, device.reasons) for device in made.devices()] == [
        (False, (BAD,)),
        (True, ()),
    ]


@pytest.mark.parametrize("mode", REGIONS)
def test_a_problem_of_a_port_is_one_of_its_region(mode: PluginMode) -> None:
    device = only(tree(mode, card(0, port("dfl-port.0"), port("dfl-port.1", NLB0, BAD))))
    assert (device.healthy, device.reasons) == (False, (BAD,))


def test_a_port_without_afu_id_is_unhealthy_where_its_function_matters() -> None:
    bare = card(0, port("dfl-port.0", "", AFU_GONE))
    assert reasons(only(tree(PluginMode.REGION, bare))) == ["afu-id-missing"]
    (not_offered,) = tree(AF, bare).not_offered
    assert reasons(not_offered) == ["afu-id-missing"]
    for mode in (PluginMode.REGIONDEVEL, BDF):
        device = only(tree(mode, bare))
        assert (device.healthy, device.reasons) == (True, ())


def test_a_card_without_region_is_unhealthy_in_each_mode_but_bdf() -> None:
    bare = with_engine_problem(card(0), ID_GONE, interface="")
    for mode in (AF, *REGIONS):
        (not_offered,) = tree(mode, bare).not_offered
        assert reasons(not_offered) == ["interface-id-missing"]
    unit = only(tree(BDF, bare))
    assert (unit.healthy, unit.reasons, unit.nodes) == (True, (), (DeviceNode("dfl-port.0"),))
    neither = with_engine_problem(
        card(0, port("dfl-port.0", "", AFU_GONE, BAD)), ID_GONE, interface=""
    )
    assert only(tree(BDF, neither)).reasons == (BAD,)


@pytest.mark.parametrize("mode", [PluginMode.REGIONDEVEL, BDF])
def test_an_empty_afu_id_is_unhealthy_where_none_is_needed_too(mode: PluginMode) -> None:
    device = only(tree(mode, card(0, port("dfl-port.0", "", AFU_EMPTY))))
    assert (device.healthy, device.reasons) == (False, (AFU_EMPTY,))


@pytest.mark.parametrize(
    "problem",
    [
        Problem("interface-id-all-f", "compat_id of dfl-fme.0 is all f"),
        Problem("interface-id-unreadable", "compat_id of dfl-fme.0 can't be read"),
        Problem("interface-id-empty", "compat_id of dfl-fme.0 is empty"),
        Problem("fme-errors", "errors/fme_errors of dfl-fme.0 reads 0x2"),
    ],
)
def test_a_broken_engine_is_unhealthy_in_bdf_mode_too(problem: Problem) -> None:
    unit = only(tree(BDF, with_engine_problem(card(0), problem, interface="")))
    assert (unit.healthy, unit.reasons) == (False, (problem,))


def test_in_bdf_mode_a_port_without_address_is_told_for_that_and_not_for_its_ids() -> None:
    bare = replace(card(0), pci=None, ports=(port("dfl-port.0", "", AFU_GONE),))
    (not_offered,) = tree(BDF, with_engine_problem(bare, ID_GONE, interface="")).not_offered
    assert (reasons(not_offered), not_offered.healthy) == (["no-pci-address"], False)


@pytest.mark.parametrize("mode", CARD_MODES)
def test_an_engine_without_port_offers_nothing_and_says_so(mode: PluginMode) -> None:
    made = tree(mode, replace(card(0), ports=()))
    assert made.resources == {}
    (not_offered,) = made.not_offered
    assert (not_offered.id, reasons(not_offered), not_offered.card) == (
        "dfl-fme.0",
        ["no-port"],
        "region0",
    )
    assert not_offered.pci_addresses == ("0000:5e:00.0",)
    assert not_offered.numa_node == 0
    message = not_offered.reasons[0].message
    assert message == "dfl-fme.0 has no port: none is enabled, or all released"


@pytest.mark.parametrize("mode", CARD_MODES)
def test_an_unreadable_card_offers_nothing_and_says_so(mode: PluginMode) -> None:
    made = tree(mode, replace(unreadable(card(0)), pci=None), card(1))
    assert [device.card for device in made.devices()] == ["region1"]
    (not_offered,) = made.not_offered
    assert (not_offered.id, not_offered.reasons) == ("region0", (UNREADABLE,))
    assert (not_offered.pci_addresses, not_offered.numa_node) == ((), None)
    assert not_offered.healthy is False


def test_an_unreadable_card_does_not_inherit_by_its_name_what_is_at_another_address() -> None:
    good = tree(AF, card(0))
    elsewhere = replace(unreadable(card(0)), pci=function("0000:af:00.0"))
    made = tree(AF, elsewhere, after=good)
    assert made.resources == {}
    assert [each.reasons for each in made.not_offered] == [(UNREADABLE,)]
    beside = replace(unreadable(card(7)), pci=None)
    assert ids(tree(AF, card(1), beside, after=good)) == {AF_NLB0: ["dfl-port.1"]}


# What was is kept


@pytest.mark.parametrize(
    "spoilt",
    [
        card(0, port("dfl-port.0", "", AFU_EMPTY)),
        with_engine_problem(card(0), ID_EMPTY, interface=""),
        without_engine(card(0)),
        unreadable(card(0)),
    ],
    ids=["afu id", "interface id", "no engine", "unreadable"],
)
def test_a_port_that_goes_bad_keeps_the_resource_it_had_until_it_is_good_again(
    spoilt: Card,
) -> None:
    good = tree(AF, card(0), card(1))
    bad = tree(AF, spoilt, card(1), after=good)
    assert ids(bad) == {AF_NLB0: ["dfl-port.0", "dfl-port.1"]} or ids(bad) == {
        AF_NLB0: ["dfl-port.1", "dfl-port.0"]
    }
    assert bad.not_offered == ()
    assert [device.healthy for device in bad.devices() if device.id == "dfl-port.0"] == [False]
    still = tree(AF, spoilt, card(1), after=bad)
    assert still == bad
    assert tree(AF, card(0), card(1), after=still) == good
    assert [each.id for each in tree(AF, spoilt).not_offered] != []


@pytest.mark.parametrize("mode", REGIONS)
@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (with_engine_problem(card(0), ID_EMPTY, interface=""), "interface-id-empty"),
        (without_engine(card(0)), "no-fme"),
        (unreadable(card(0)), "card-unreadable"),
        (replace(card(0), ports=()), "no-port"),
    ],
)
def test_a_region_that_goes_bad_keeps_the_resource_it_had(
    mode: PluginMode, spoilt: Card, reason: str
) -> None:
    good = tree(mode, card(0))
    bad = tree(mode, spoilt, after=good)
    assert ids(bad) == ids(good)
    assert reasons(only(bad)) == [reason]
    assert only(bad).healthy is False
    if reason == "no-fme":
        message = "region0 can't be programmed or named: its card has no FME"
        assert only(bad).reasons[0].message == message
    assert only(bad).nodes == only(good).nodes
    assert tree(mode, spoilt, after=bad) == bad
    assert tree(mode, card(0), after=bad) == good


def test_an_unreadable_card_keeps_what_its_devices_were() -> None:
    good = tree(BDF, card(0, port("dfl-port.0"), port("dfl-port.1", number=1)))
    bad = tree(BDF, unreadable(card(0)), after=good)
    assert [device.nodes for device in bad.devices()] == [device.nodes for device in good.devices()]
    assert all(device.reasons == (UNREADABLE,) for device in bad.devices())
    assert [device.afu_ids for device in bad.devices()] == [("",), ("",)]


def test_a_card_without_address_keeps_its_devices_by_its_name() -> None:
    bare = replace(card(0), pci=None, ports=(port("dfl-port.0"),))
    other = replace(card(1), pci=None, ports=(port("dfl-port.1"),))
    bad = tree(AF, unreadable(bare), other, after=tree(AF, bare, other))
    assert [(device.id, device.healthy) for device in bad.devices()] == [
        ("dfl-port.1", True),
        ("dfl-port.0", False),
    ]


def test_a_card_that_does_not_tell_its_address_any_more_keeps_its_devices() -> None:
    good = tree(AF, card(0), card(1))
    lost = replace(unreadable(card(0)), pci=None)
    bad = tree(AF, lost, card(1), after=good)
    assert [(device.id, device.healthy) for device in bad.devices()] == [
        ("dfl-port.1", True),
        ("dfl-port.0", False),
    ]
    assert bad.not_offered == ()
    spoilt = card(0, port("dfl-port.0", "", AFU_EMPTY))
    assert ids(tree(AF, spoilt, card(1), after=bad)) == ids(good)


def test_a_port_that_gets_another_function_moves() -> None:
    good = tree(AF, card(0))
    moved = tree(AF, card(0, port("dfl-port.0", NLB3)), after=good)
    assert ids(moved) == {AF_NLB3: ["dfl-port.0"]}
    assert moved.not_offered == ()


def test_a_card_with_another_interface_moves() -> None:
    good = tree(AF, card(0))
    assert ids(tree(AF, card(0, interface=OTHER), after=good)) == {AF_OTHER: ["dfl-port.0"]}


def test_a_card_that_comes_to_have_the_name_of_another_does_not_inherit() -> None:
    good = tree(AF, card(0))
    elsewhere = card(0, port("dfl-port.0", "", AFU_EMPTY), pci=function("0000:af:00.0"))
    made = tree(AF, elsewhere, after=good)
    assert made.resources == {}
    assert [each.id for each in made.not_offered] == ["dfl-port.0"]


def test_a_card_that_is_gone_is_forgotten() -> None:
    gone = tree(AF, card(1), after=tree(AF, card(0), card(1)))
    assert ids(gone) == {AF_NLB0: ["dfl-port.1"]}
    assert tree(AF, card(0, port("dfl-port.0", "", AFU_EMPTY)), after=gone).resources == {}


@pytest.mark.parametrize("before", [BDF, *REGIONS])
def test_a_mode_knows_nothing_of_another(before: PluginMode) -> None:
    made = tree(AF, card(0, port("dfl-port.0", "", AFU_EMPTY)), after=tree(before, card(0)))
    assert made.resources == {}


@pytest.mark.parametrize("mode", REGIONS)
@pytest.mark.parametrize(
    "spoilt",
    [
        with_engine_problem(card(0), ID_EMPTY, interface=""),
        without_engine(card(0)),
        unreadable(card(0)),
        replace(card(0), ports=()),
    ],
)
def test_a_region_that_is_bad_while_its_mode_changes_to_the_other_is_the_same_device(
    mode: PluginMode, spoilt: Card
) -> None:
    (other,) = set(REGIONS) - {mode}
    changed = tree(other, spoilt, after=tree(mode, card(0)))
    stayed = tree(other, spoilt, after=tree(other, card(0)))
    assert ids(changed) == ids(stayed) == {REGION: ["dfl-fme.0"]}
    assert only(changed).nodes == only(stayed).nodes
    assert tree(other, card(0), after=changed) == tree(other, card(0))


def test_a_device_that_is_there_is_not_carried_over_as_well() -> None:
    good = tree(AF, card(0))
    renamed = replace(card(0), name="region7")
    made = tree(AF, unreadable(card(0)), renamed, after=good)
    assert only(made).healthy
    assert made.not_offered == ()


def test_of_two_devices_with_one_name_the_second_is_not_offered() -> None:
    twin = card(1, port("dfl-port.0"))
    made = tree(AF, card(0), twin)
    assert only(made).card == "region0"
    (not_offered,) = made.not_offered
    assert (not_offered.resource, not_offered.card, not_offered.healthy) == ("", "region1", False)
    message = "dfl-port.0 on region1 has the name of another device"
    assert not_offered.reasons == (Problem("duplicate-name", message),)


# For any cards

_PROBLEMS = st.lists(st.sampled_from([BAD, AFU_EMPTY, AFU_GONE]), max_size=2).map(tuple)


@st.composite
def _cards(draw: st.DrawFn) -> tuple[Card, ...]:
    """Cards in any condition, by the rules of a scan: a name is there once."""
    made = []
    for index in range(draw(st.integers(0, 4))):
        good = card(index, *(_port(draw, 4 * index + each) for each in range(draw(_FEW))))
        condition = draw(st.sampled_from(["good", "good", "engine", "bare", "none", "lost"]))
        match condition:
            case "engine":
                interface = draw(st.sampled_from(["", INTERFACE]))
                good = with_engine_problem(good, ID_EMPTY, interface=interface)
            case "bare":
                good = replace(good, ports=())
            case "none":
                good = without_engine(good)
            case "lost":
                good = unreadable(good)
        made.append(good)
        if draw(st.booleans()):
            made.append(virtual(good, 1, port(f"dfl-port.{4 * index + 3}")))
    return tuple(made)


_FEW = st.integers(1, 3)


def _port(draw: st.DrawFn, serial: int) -> Port:
    problems = draw(_PROBLEMS)
    afu_id = "" if {AFU_EMPTY, AFU_GONE} & set(problems) else draw(st.sampled_from([NLB0, NLB3]))
    return port(f"dfl-port.{serial}", afu_id, *problems, number=serial % 4)


@given(st.sampled_from(CARD_MODES), _cards(), _cards())
def test_whatever_cards_there_are_the_tree_holds_together(
    mode: PluginMode, earlier: tuple[Card, ...], later: tuple[Card, ...]
) -> None:
    before = tree(mode, *earlier)
    made = tree(mode, *later, after=before)
    devices = list(made.devices())
    assert len({device.id for device in devices}) == len(devices)
    assert all(made.resources.values())
    for resource, of_resource in made.resources.items():
        for key, device in of_resource.items():
            assert (device.id, device.resource) == (key, resource)
            assert len(key) <= 63
            assert device.healthy is not bool(device.reasons)
            assert device.nodes
    for each in made.not_offered:
        assert each.resource == ""
        assert each.reasons
        assert not each.healthy
    assert tree(mode, *later, after=made) == made


@given(st.sampled_from(CARD_MODES), _cards(), st.integers(0, 3))
def test_a_good_card_is_offered_whatever_the_others_are_like(
    mode: PluginMode, others: tuple[Card, ...], position: int
) -> None:
    good = card(40)
    alone = only(tree(mode, good))
    made = tree(mode, *others[:position], good, *others[position:])
    assert made.resources[alone.resource][alone.id] == alone
