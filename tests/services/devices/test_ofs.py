from dataclasses import replace

import pytest

from services.devices.model import Card, Device, DeviceNode, PluginMode, VirtualFunction
from services.devices.ofs import afu_id, in_use, ofs_devices
from services.process.problem import Problem
from tests.services.cards import BAD, INTERFACE, card, function, port
from tests.services.ofs_cards import AFU_HEADER, HE_MEM

NO_AFU = Problem("afu-id-missing", "dfl-port.0 has no afu_id")
UNBOUND = Problem("vfio-not-bound", "0000:b1:00.5 is not bound to vfio-pci")
VFIO = DeviceNode("vfio/vfio", number=(10, 196))
AF = PluginMode.AF
ONES = 2**64 - 1


def virtual(number: int, afu: str = HE_MEM, *problems: Problem) -> VirtualFunction:
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
    (device,) = devices(ofs_card(virtual(5), virtual(6)), PluginMode.REGIONDEVEL)
    assert (device.id, device.resource) == ("dfl-fme.0", f"fpga.intel.com/region-{INTERFACE}")
    assert [node.name for node in device.nodes] == ["vfio/5", "vfio/vfio", "vfio/6", "dfl-fme.0"]
    assert device.pci_addresses == ("0000:b1:00.5", "0000:b1:00.6", "0000:b1:00.0")


@pytest.mark.parametrize(
    ("found", "mode", "expected"),
    [
        (ofs_card(virtual(5), virtual(6, "", UNBOUND)), AF, [[], ["vfio-not-bound"]]),
        (ofs_card(virtual(5), problems=(BAD,)), AF, [["port-errors"]]),
        (ofs_card(virtual(5, "", in_use("0000:b1:00.5"))), AF, [["function-in-use"]]),
        (ofs_card(virtual(5, "", UNBOUND)), PluginMode.REGIONDEVEL, [["vfio-not-bound"]]),
        (ofs_card(virtual(5)), PluginMode.REGION, [["programming-not-supported"]]),
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
    found = ofs_card(virtual(5))
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
