from dataclasses import replace

import pytest

from services.devices.model import Card, Device, DeviceNode, Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.names import resource_variable
from services.process.problem import Problem
from tests.services.cards import (
    AF_NLB0,
    BAD,
    INTERFACE,
    NLB0,
    NLB3,
    REGION,
    UNIT,
    advertise,
    card,
    function,
    port,
    virtual,
)

AF, UNITS, BDF = PluginMode.AF, PluginMode.UNITS, PluginMode.BDF
REGIONS = (PluginMode.REGION, PluginMode.REGIONDEVEL)
CARD_MODES = (AF, *REGIONS, BDF)
AF_NLB3 = "fpga.intel.com/af-ce4.f7d.zkiWk5jwXzOUbVYHCL4QivffQFy9es9yIvFEsLk6zRg"
AFU_GONE = Problem("afu-id-missing", "dfl-port.0 has no afu_id")
AFU_EMPTY = Problem("afu-id-empty", "afu_id of dfl-port.0 is empty")
ID_GONE = Problem("interface-id-missing", "dfl-fme.0 has no compat_id")
UNREADABLE = Problem("card-unreadable", "region0 can't be listed")


def offer(
    mode: PluginMode, *cards: Card, after: AdvertisedResources | None = None
) -> AdvertisedResources:
    return advertise(Inventory(cards), mode, previous=after.devices() if after else ())


def ids(made: AdvertisedResources) -> dict[str, list[str]]:
    return {resource: list(devices) for resource, devices in made.resources.items()}


def reasons(device: Device) -> list[str]:
    return [problem.code for problem in device.reasons]


def only(made: AdvertisedResources) -> Device:
    (device,) = made.devices()
    return device


def unreadable(of: Card) -> Card:
    return replace(of, fme=None, ports=(), failure=UNREADABLE)


def with_engine_problem(of: Card, *problems: Problem, interface: str = INTERFACE) -> Card:
    assert of.fme is not None
    return replace(of, fme=replace(of.fme, problems=problems, interface_id=interface))


# What each mode offers


def test_in_af_mode_a_device_is_a_port_under_the_function_in_it() -> None:
    made = offer(AF, card(0), card(1, port("dfl-port.1", NLB3)))
    assert ids(made) == {AF_NLB0: ["dfl-port.0"], AF_NLB3: ["dfl-port.1"]}
    assert made.resources[AF_NLB3]["dfl-port.1"] == Device(
        id="dfl-port.1",
        resource=AF_NLB3,
        nodes=(DeviceNode("dfl-port.1"),),
        numa_node=1,
        pci_addresses=("0000:5f:00.0",),
        card="region1",
        place="0000:5f:00.0",
        interface_id=INTERFACE,
        afu_ids=(NLB3,),
        cdi="intel.cdi.k8s.io/fpga=dfl-port.1",
        envs=((resource_variable(AF_NLB3), "0000:5f:00.0"),),
        claims=frozenset({"0000:5f:00.0", "5f:00.0", "dfl-port.1", "dfl-fme.1"}),
    )
    assert made.not_offered == ()


def unit_nodes(made: AdvertisedResources) -> dict[str, str]:
    return {key: device.nodes[0].name for key, device in made.resources[UNIT].items()}


def test_in_bdf_mode_a_port_keeps_its_id_whatever_becomes_of_the_others_of_its_function() -> None:
    first, second = port("dfl-port.4", number=0), port("dfl-port.5", number=1)
    both = {"5e:00.0": "dfl-port.4", "5e:00.0-1": "dfl-port.5"}
    made = offer(BDF, card(0, first, second))
    assert unit_nodes(made) == both

    numberless = replace(first, number=None)
    made = offer(BDF, card(0, second, numberless), after=made)
    assert unit_nodes(made) == both
    made = offer(BDF, unreadable(card(0)), after=made)
    assert unit_nodes(made) == both

    made = offer(BDF, card(0, second), after=made)
    assert unit_nodes(made) == {"5e:00.0-1": "dfl-port.5"}
    made = offer(BDF, card(0, second, port("dfl-port.6", number=2)), after=made)
    assert unit_nodes(made) == {"5e:00.0-1": "dfl-port.5", "5e:00.0-2": "dfl-port.6"}
    made = offer(BDF, card(0, first, second, port("dfl-port.6", number=2)), after=made)
    assert unit_nodes(made) == both | {"5e:00.0-2": "dfl-port.6"}
    last = replace(second, number=None)
    assert unit_nodes(offer(BDF, card(0, last), after=made)) == {"5e:00.0-1": "dfl-port.5"}


def test_in_bdf_mode_a_new_port_never_gets_the_id_of_another() -> None:
    alone = offer(BDF, card(0, port("dfl-port.5", number=1)))
    assert unit_nodes(alone) == {"5e:00.0-1": "dfl-port.5"}, "also after a restart of the plugin"
    made = offer(BDF, card(0, port("dfl-port.4"), port("dfl-port.5", number=1)), after=alone)
    assert unit_nodes(made) == {"5e:00.0": "dfl-port.4", "5e:00.0-1": "dfl-port.5"}
    assert made.not_offered == ()
    more = [port(f"dfl-port.{n}", number=1) for n in (5, 6, 7)]
    assert unit_nodes(offer(BDF, card(0, port("dfl-port.4"), *more), after=made)) == {
        "5e:00.0": "dfl-port.4",
        "5e:00.0-1": "dfl-port.5",
        "5e:00.0-2": "dfl-port.6",
        "5e:00.0-3": "dfl-port.7",
    }


# Virtual functions


@pytest.mark.parametrize("mode", REGIONS)
def test_a_region_has_the_ports_of_its_virtual_functions(mode: PluginMode) -> None:
    physical = replace(card(0), ports=())
    cards = (
        virtual(physical, 1, port("dfl-port.1", number=1)),
        physical,
        virtual(physical, 2, port("dfl-port.2", NLB3, number=2)),
    )
    made = offer(mode, *cards)
    device = only(made)
    develops = mode is PluginMode.REGIONDEVEL
    names = ["dfl-port.1", "dfl-port.2", "dfl-fme.0"][: 3 if develops else 2]
    assert [node.name for node in device.nodes] == names
    addresses = ("0000:5e:00.1", "0000:5e:00.2", "0000:5e:00.0")
    assert device.pci_addresses == addresses[: 3 if develops else 2]
    assert device.afu_ids == (NLB0, NLB3)
    assert device.healthy
    assert made.not_offered == ()
    alone = only(offer(mode, *cards[:2]))
    assert alone.nodes[0].name == "dfl-port.1"
    assert alone.resource == REGION


@pytest.mark.parametrize("mode", [AF, *REGIONS])
def test_a_virtual_function_without_its_physical_one_offers_nothing_and_says_so(
    mode: PluginMode,
) -> None:
    orphan = virtual(card(0), 1, port("dfl-port.1"))
    made = offer(mode, orphan, card(1))
    assert [device.card for device in made.devices()] == ["region1"]
    (not_offered,) = made.not_offered
    assert (not_offered.id, not_offered.resource) == ("dfl-port.1", "")
    assert reasons(not_offered) == ["no-fme"]
    assert "its physical function 0000:5e:00.0 has no FME" in not_offered.reasons[0].text


def test_a_virtual_function_whose_physical_one_can_not_be_read_says_why() -> None:
    physical = card(0)
    split = virtual(physical, 1, port("dfl-port.1", number=1))
    good = offer(AF, physical, split)
    bad = offer(AF, unreadable(physical), split, after=good)
    assert ids(bad) == {AF_NLB0: ["dfl-port.1", "dfl-port.0"]}
    assert [device.reasons for device in bad.devices()] == [(UNREADABLE,), (UNREADABLE,)]
    nowhere = replace(unreadable(physical), pci=None)
    bare = Card("dfl", "region9", None, None, (port("dfl-port.9"),))
    assert reasons(offer(AF, nowhere, bare).not_offered[0]) == ["no-fme"]


# Health

TWO_PORTS = card(0, port("dfl-port.0"), port("dfl-port.1", number=1))
BAD_PORT = card(0, port("dfl-port.0", NLB0, BAD), port("dfl-port.1", number=1))
BAD_ENGINE = with_engine_problem(TWO_PORTS, BAD)
NO_AFU = card(0, port("dfl-port.0", "", AFU_GONE))
EMPTY_AFU = card(0, port("dfl-port.0", "", AFU_EMPTY))
NO_REGION = with_engine_problem(card(0), ID_GONE, interface="")
NEITHER = with_engine_problem(card(0, port("dfl-port.0", "", AFU_GONE, BAD)), ID_GONE, interface="")
NO_FUNCTION = with_engine_problem(
    replace(NO_AFU, pci=None, ports=(replace(NO_AFU.ports[0], pci=None),)), ID_GONE, interface=""
)
ENGINE_REASONS = ("interface-id-all-f", "interface-id-empty", "fme-errors")


@pytest.mark.parametrize(
    ("found", "modes", "expected"),
    [
        # A problem of an engine is one of each of its ports, in every mode.
        (BAD_ENGINE, (AF, BDF), [["port-errors"], ["port-errors"]]),
        (BAD_ENGINE, REGIONS, [["port-errors"]]),
        # A problem of a port is its own, and one of its region.
        (BAD_PORT, (AF, BDF), [["port-errors"], []]),
        (BAD_PORT, REGIONS, [["port-errors"]]),
        # A port without the file reaches no AFU.
        (NO_AFU, CARD_MODES, [["afu-id-missing"]]),
        (EMPTY_AFU, CARD_MODES, [["afu-id-empty"]]),
        # A card may have no region to be programmed, in mode bdf.
        (NO_REGION, (AF, *REGIONS), [["interface-id-missing"]]),
        (NO_REGION, (BDF,), [[]]),
        (NEITHER, (BDF,), [["afu-id-missing", "port-errors"]]),
        (NO_FUNCTION, (BDF,), [["afu-id-missing", "no-pci-address"]]),
        *(
            (with_engine_problem(card(0), Problem(each, "x"), interface=""), (BDF,), [[each]])
            for each in ENGINE_REASONS
        ),
    ],
)
def test_a_device_is_unhealthy_for_the_reasons_that_count_in_its_mode(
    found: Card, modes: tuple[PluginMode, ...], expected: list[list[str]]
) -> None:
    for mode in modes:
        made = offer(mode, found, card(2))
        devices = [each for each in (*made.devices(), *made.not_offered) if each.card == "region0"]
        assert [reasons(each) for each in devices] == expected
        assert [each.healthy for each in made.devices() if each.card == "region2"] == [True]
        assert made.resources.keys() <= {AF_NLB0, REGION, UNIT}


# What was is kept


NO_ADDRESS = replace(card(0), pci=None, ports=(port("dfl-port.0"),))
OTHERS = [("dfl-port.1", True)]
LOST = {AF_NLB0: [*OTHERS, ("dfl-port.0", False)]}
ELSEWHERE = function("0000:af:00.0")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        # A card that can't be read is identified by its address, or else by its name.
        (card(0), unreadable(card(0)), LOST),
        (card(0), replace(unreadable(card(0)), pci=None), LOST),
        (NO_ADDRESS, unreadable(NO_ADDRESS), LOST),
        # Another card of the same name does not inherit, nor does another name at no address.
        (card(0), card(0, port("dfl-port.0", "", AFU_EMPTY), pci=ELSEWHERE), {AF_NLB0: OTHERS}),
        (card(0), replace(unreadable(card(0)), pci=ELSEWHERE), {AF_NLB0: OTHERS}),
        # Another function is another resource.
        (
            card(0),
            card(0, port("dfl-port.0", NLB3)),
            {AF_NLB3: [("dfl-port.0", True)], AF_NLB0: OTHERS},
        ),
        # A device that is there is not carried over as well.
        (
            card(0),
            (unreadable(card(0)), replace(card(0), name="region7")),
            {AF_NLB0: [("dfl-port.0", True), *OTHERS]},
        ),
    ],
)
def test_offered_devices_are_kept_for_the_same_card_only(
    before: Card, now: Card | tuple[Card, ...], expected: dict[str, list[tuple[str, bool]]]
) -> None:
    later = now if isinstance(now, tuple) else (now,)
    made = offer(AF, *later, card(1), after=offer(AF, before, card(1)))
    assert {
        resource: [(each.id, each.healthy) for each in devices.values()]
        for resource, devices in made.resources.items()
    } == expected
