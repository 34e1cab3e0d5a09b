from dataclasses import replace

import pytest

from services.devices.held import HELD, card_resources, held_functions, held_parts, port_resources
from services.devices.model import Card, Device, DeviceNode, Inventory, PluginMode, VirtualFunction
from services.devices.ofs import afu_id, in_use, ofs_devices
from services.process.problem import Problem
from tests.services.cards import (
    AF_NLB0,
    BAD,
    INTERFACE,
    REGION,
    UNIT,
    advertise,
    card,
    function,
    port,
    virtual,
)
from tests.services.ofs_cards import AFU_HEADER, HE_MEM

NO_AFU = Problem("afu-id-missing", "dfl-port.0 has no afu_id")
UNBOUND = Problem("vfio-not-bound", "0000:b1:00.5 is not bound to vfio-pci")
VFIO = DeviceNode("vfio/vfio", number=(10, 196))
AF = PluginMode.AF
ONES = 2**64 - 1


def virtual_function(number: int, afu: str = HE_MEM, *problems: Problem) -> VirtualFunction:
    own = DeviceNode(f"vfio/{number}")
    return VirtualFunction(
        function(f"0000:b1:00.{number}", numa=1, physfn="0000:b1:00.0"),
        bar="",
        inode=number,
        afu_id=afu,
        nodes=() if problems else (own, VFIO),
        problems=problems,
    )


def ofs_card(*functions: VirtualFunction, problems: tuple[Problem, ...] = ()) -> Card:
    pci = function("0000:b1:00.0", numa=1)
    return replace(card(0, port("dfl-port.0", "", NO_AFU, *problems), pci=pci), functions=functions)


def devices(of: Card, mode: PluginMode) -> list[Device]:
    assert of.functions is not None
    return [*ofs_devices(of, of.functions, mode)]


def reasons(of: Card, mode: PluginMode) -> list[list[str]]:
    return [[each.code for each in device.reasons] for device in devices(of, mode)]


def test_in_regiondevel_mode_a_device_is_the_engine_with_all_virtual_functions() -> None:
    (device,) = devices(ofs_card(virtual_function(5), virtual_function(6)), PluginMode.REGIONDEVEL)
    assert (device.id, device.resource) == ("dfl-fme.0", f"fpga.intel.com/region-{INTERFACE}")
    assert [node.name for node in device.nodes] == ["vfio/5", "vfio/vfio", "vfio/6", "dfl-fme.0"]
    assert device.pci_addresses == ("0000:b1:00.5", "0000:b1:00.6", "0000:b1:00.0")


@pytest.mark.parametrize(
    ("found", "mode", "expected"),
    [
        (
            ofs_card(virtual_function(5), virtual_function(6, "", UNBOUND)),
            AF,
            [[], ["vfio-not-bound"]],
        ),
        (ofs_card(virtual_function(5), problems=(BAD,)), AF, [["port-errors"]]),
        (ofs_card(virtual_function(5, "", in_use("0000:b1:00.5"))), AF, [["function-in-use"]]),
        (ofs_card(virtual_function(5, "", UNBOUND)), PluginMode.REGIONDEVEL, [["vfio-not-bound"]]),
        (ofs_card(virtual_function(5)), PluginMode.REGION, [["programming-not-supported"]]),
        *((ofs_card(), mode, [["no-virtual-functions"]]) for mode in (AF, PluginMode.REGIONDEVEL)),
    ],
)
def test_functions_out_of_reach_are_not_offered_and_have_a_reason(
    found: Card, mode: PluginMode, expected: list[list[str]]
) -> None:
    assert reasons(found, mode) == expected
    for device in devices(found, mode):
        assert bool(device.resource) is (set(device.reasons) <= {BAD})


def test_without_an_interface_id_no_function_has_a_resource() -> None:
    """As on a C6100: device types can serve its functions."""
    found = ofs_card(virtual_function(5))
    assert found.fme is not None
    gone = Problem("interface-id-missing", "dfl-fme.0 has no compat_id")
    found = replace(found, fme=replace(found.fme, interface_id="", problems=(gone,)))
    for mode in (AF, PluginMode.REGIONDEVEL):
        (device,) = devices(found, mode)
        assert (device.resource, device.reasons) == ("", (gone,))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((AFU_HEADER, int(HE_MEM[16:], 16), int(HE_MEM[:16], 16)), HE_MEM),
        ((3 << 60, 1, 1), None),
        ((AFU_HEADER, 0, 0), None),
        ((AFU_HEADER, ONES, ONES), None),
    ],
)
def test_the_guid_counts_behind_the_header_of_an_afu(
    words: tuple[int, int, int], expected: str | None
) -> None:
    found = afu_id("0000:b1:00.5", words)
    if expected is None:
        assert isinstance(found, Problem)
        assert found.code == "function-invalid"
    else:
        assert found == expected


# Who holds a function or port


def held(inventory: Inventory, *allocated: str) -> list[str]:
    parts, node = held_parts([("r", device) for device in allocated]), inventory
    ports = [(card, port) for card in inventory.cards for port in card.ports]
    return [port.name for card, port in ports if port_resources(parts, node, card, port)]


def test_a_port_is_held_whatever_the_mode_a_container_got_it_in() -> None:
    physical = card(0, port("dfl-port.0"))
    split = virtual(physical, 1, port("dfl-port.1"))
    inventory = Inventory((physical, split, card(2, port("dfl-port.2"))))
    assert held(inventory) == []
    assert held(inventory, "dfl-port.0") == ["dfl-port.0"]
    assert held(inventory, "dfl-fme.0") == ["dfl-port.0", "dfl-port.1"]
    assert held(inventory, "5e:00.0-1") == ["dfl-port.0"]
    for device in ("dfl-fme.0", "dfl-port.1", "5e:00.0-1", "dfl-port.2"):
        parts = held_parts([("r", device)])
        is_in_it = bool(card_resources(parts, inventory, physical))
        assert is_in_it is (device != "dfl-port.2")


def test_who_has_a_port_of_an_unknown_region_is_unknown() -> None:
    lost = virtual(card(3), 1, port("dfl-port.9"))
    assert port_resources({}, Inventory((lost,)), lost, lost.ports[0]) is None


OTHER = f"{AF_NLB0}-before"


@pytest.mark.parametrize(
    ("mode", "allocated", "healthy"),
    [
        (PluginMode.AF, [(AF_NLB0, "dfl-port.0"), (OTHER, "dfl-port.1")], True),
        (PluginMode.AF, [(OTHER, "dfl-port.0")], False),
        (PluginMode.AF, [(AF_NLB0, "dfl-port.0"), (OTHER, "dfl-port.0")], False),
        (PluginMode.AF, [(REGION, "dfl-fme.0")], False),
        (PluginMode.AF, [(UNIT, "5e:00.0")], False),
        (PluginMode.REGION, [(AF_NLB0, "dfl-port.0")], False),
        (PluginMode.REGIONDEVEL, [("device.accelbind.dev/t", "0000-5e-00-0-r2")], False),
        (PluginMode.BDF, [(REGION, "dfl-fme.0")], False),
    ],
)
def test_a_device_held_as_another_resource_is_unhealthy(
    mode: PluginMode, allocated: list[tuple[str, str]], *, healthy: bool
) -> None:
    inventory = Inventory((card(0),))
    (device,) = advertise(inventory, mode, allocated=allocated).devices()
    assert {each.code for each in device.reasons} == (set() if healthy else {HELD})


def test_a_card_is_locked_together_with_its_virtual_functions() -> None:
    physical = card(0)
    split = virtual(physical, 1, port("dfl-port.1"))
    engineless = replace(card(1), fme=None)
    bare = replace(engineless, pci=None)
    locks = [each.lock for each in (physical, split, engineless, bare)]
    assert locks == ["0000:5e:00.0", "0000:5e:00.0", "0000:5f:00.0", "region1"]


def test_a_virtual_function_of_an_ofs_card_is_held_by_its_id_or_its_engine() -> None:
    found = ofs_card(virtual_function(5), virtual_function(6))
    inventory = Inventory((found,))
    first, both = {"0000:b1:00.5"}, {"0000:b1:00.5", "0000:b1:00.6"}
    assert held_functions([found], held_parts([("a", "0000-b1-00-5")])) == first
    assert held_functions([found], held_parts([("a", "dfl-fme.0")])) == both
    assert held_functions([card(0)], held_parts([("a", "dfl-port.0")])) == set()
    assert held(inventory, "0000-b1-00-6") == ["dfl-port.0"], "programming would change it"
    assert card_resources(held_parts([("a", "0000-b1-00-6")]), Inventory((found,)), found) == {"a"}
    allocated = [("device.accelbind.dev/he-mem", "0000-b1-00-6")]
    (region,) = advertise(inventory, PluginMode.REGIONDEVEL, allocated=allocated).devices()
    assert [each.code for each in region.reasons] == [HELD]


def test_a_function_in_use_since_before_the_start_stays_under_the_resource_of_its_container() -> (
    None
):
    unknown = virtual_function(5, "", in_use("0000:b1:00.5"))
    inventory = Inventory((ofs_card(unknown, virtual_function(6)),))
    allocated = [(AF_NLB0, "0000-b1-00-5"), (REGION, "0000-b1-00-5"), (AF_NLB0, "0000-b1-00-6")]
    offer = advertise(inventory, PluginMode.AF, allocated=allocated)
    (device,) = offer.resources[AF_NLB0].values()
    assert (device.id, device.healthy) == ("0000-b1-00-5", False)
    assert device.cdi
    assert "0000:b1:00.5" in device.claims
    known = [*offer.devices()]
    again = advertise(inventory, PluginMode.AF, previous=known)
    assert "0000-b1-00-5" in again.resources[AF_NLB0]
