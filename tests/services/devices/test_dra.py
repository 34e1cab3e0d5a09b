"""Devices as DRA knows them."""

from dataclasses import replace
from typing import Any

import pytest

from services.devices.dra import (
    NUMA_NODE,
    PCI_BUS_ID,
    PCIE_ROOT,
    Attributes,
    DraDevice,
    carried,
    dra_devices,
    held_by_plugin,
)
from services.devices.model import Card, Contents, Device, Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.names import OPENCL_AFU
from tests.services.cards import INTERFACE, NLB0, NLB3, advertise, card, function, port

PROGRAM = "9" * 40


def devices_of(
    *cards: Card, programmed: Contents | None = None, **options: Any
) -> tuple[DraDevice, ...]:
    inventory = Inventory(cards)
    offer = advertise(inventory, PluginMode.REGION)
    return dra_devices(offer, inventory, programmed or {}, **options)


def of_type(*devices: Device) -> tuple[DraDevice, ...]:
    offer = AdvertisedResources({"r": {each.id: each for each in devices}}, ())
    return dra_devices(offer, Inventory(), {})


def test_a_region_is_named_by_its_address_and_has_all_attributes() -> None:
    pci = replace(function(), vendor="8086", device="09c4", root="pci0000:5d")
    (found,) = devices_of(card(pci=pci), programmable=False)
    assert found.name == "fpga-0000-5e-00-0"
    assert found.device.id == "dfl-fme.0"
    assert found.attributes == {
        "type": "fpga",
        "interfaceID": INTERFACE,
        "afuID": NLB0,
        "program": "",
        "card": "0000:5e:00.0",
        "programmable": False,
        "vendorID": "8086",
        "deviceID": "09c4",
        "kernelDriver": "dfl",
        PCI_BUS_ID: "0000:5e:00.0",
        PCIE_ROOT: "pci0000:5d",
        NUMA_NODE: 0,
    }


@pytest.mark.parametrize(
    ("shown", "programmed", "afu_id", "program"),
    [
        ((NLB0, NLB0), {0: NLB0, 1: NLB0}, NLB0, ""),
        ((NLB0, NLB3), {}, "", ""),
        ((NLB0, NLB0), {1: ""}, "", ""),
        ((NLB0, NLB0), {9: ""}, NLB0, ""),
        ((OPENCL_AFU, OPENCL_AFU), {0: PROGRAM, 1: PROGRAM}, OPENCL_AFU, PROGRAM),
        ((OPENCL_AFU, OPENCL_AFU), {0: PROGRAM}, OPENCL_AFU, ""),
    ],
)
def test_a_region_has_a_function_if_all_its_ports_have_it(
    shown: tuple[str, str], programmed: dict[int, str], afu_id: str, program: str
) -> None:
    ports = [port(f"dfl-port.{index}", afu, number=index) for index, afu in enumerate(shown)]
    known = {f"dfl-port.{index}": function for index, function in programmed.items()}
    (found,) = devices_of(card(0, *ports), programmed=known)
    assert (found.attributes["afuID"], found.attributes["program"]) == (afu_id, program)


NEC = Device(
    "0000-b1-00-0",
    "device.accelbind.dev/nec-ve",
    numa_node=1,
    pci_addresses=("0000:b1:00.0",),
    card="ve0",
    type="nec-ve",
    attributes=(("cores", 8), ("vendorID", "1bcf"), ("pcieRoot", "pci0000:b0"), ("on", True)),
)


def test_a_device_of_a_type_has_its_own_attributes_and_none_of_fpgas() -> None:
    (found,) = of_type(NEC)
    assert found.name == "nec-ve-0000-b1-00-0"
    assert found.attributes == {
        "vendorID": "1bcf",
        "deviceID": "",
        "kernelDriver": "",
        "cores": 8,
        "on": True,
        "type": "nec-ve",
        "card": "0000:b1:00.0",
        PCI_BUS_ID: "0000:b1:00.0",
        PCIE_ROOT: "pci0000:b0",
        NUMA_NODE: 1,
    }


@pytest.mark.parametrize(
    ("device", "card"),
    [
        (replace(NEC, id="0000-b1-00-0-r1", share=1), "0000:b1:00.0"),
        (Device("fdab0000-npu-r1", "r", type="npu", card="accel0", share=1), "fdab0000-npu"),
        (Device("3-1-2", "r", type="stick", card="accel0"), "3-1-2"),
        (Device("3-1-2--video0", "r", type="camera", card="video0"), "3-1-2"),
        (Device("board-r1", "r", type="board", card="misc0"), "board-r1"),
        (Device("board-r1-r0", "r", type="board", card="misc0", share=0), "board-r1"),
    ],
)
def test_the_card_of_a_device_names_it_and_all_its_shares(device: Device, card: str) -> None:
    (found,) = of_type(device)
    assert found.attributes["card"] == card


def test_of_two_devices_with_one_name_the_first_counts_and_names_are_sorted() -> None:
    twin = replace(NEC, id="b", type="a")
    found = of_type(replace(NEC, id="c", type="a"), twin, replace(twin, id="B", card="x"))
    assert [(each.name, each.device.id) for each in found] == [("a-b", "b"), ("a-c", "c")]


@pytest.mark.parametrize(
    ("value", "published"),
    [(2**63 - 1, 2**63 - 1), (2**63, 0), ("ä" * 40, "ä" * 32), (False, False)],
)
def test_values_fit_the_api(value: Any, published: Any) -> None:
    (found,) = of_type(replace(NEC, attributes=(("own", value),)))
    assert found.attributes["own"] == published
    assert type(found.attributes["own"]) is type(published)


def test_a_claimed_device_shows_what_was_programmed_or_shown_before() -> None:
    before = {"afuID": NLB0}  # an older version may have published fewer
    (changed,) = devices_of(card(0, port(afu_id="a" * 32)))
    assert carried(changed, before, {}).attributes == {**changed.attributes, **before}
    for programmed, afu_id in (({"dfl-port.0": ""}, ""), ({"dfl-port.0": NLB3}, NLB3)):
        (now,) = devices_of(card(0, port(afu_id=NLB3)), programmed=programmed)
        assert carried(now, before, programmed).attributes["afuID"] == afu_id
    unread = replace(changed, device=replace(changed.device, nodes=()))
    assert carried(unread, before, {}).attributes["afuID"] == NLB0


def test_a_claimed_device_has_the_attributes_of_its_type_as_it_is_now() -> None:
    (now,) = of_type(NEC)
    before: Attributes = {"cores": 4, "on": 1, "gone": "x", "card": "ve0"}
    assert carried(now, before, {}).attributes == {**now.attributes, "cores": 4}


@pytest.mark.parametrize(
    ("allocated", "held"),
    [
        ([("af-x", "dfl-port.0")], True),
        ([("region-x", "dfl-fme.0")], True),
        ([("unit", "5e:00.0-1")], True),
        ([("unit", "3")], False),
    ],
)
def test_a_region_of_which_the_plugin_gave_out_a_part_is_known(
    allocated: list[tuple[str, str]], held: bool
) -> None:
    devices = devices_of(card())
    assert held_by_plugin(devices, allocated) == {each.name for each in devices if held}


@pytest.mark.parametrize(
    ("ids", "allocated", "held"),
    [
        (["x-r0", "x-r1"], "x-r0", ["x-r0"]),
        (["x-r0", "x-r1"], "x-r2", ["x-r0", "x-r1"]),  # from a time with more replicas
        (["x", "y"], "x-r2", ["x"]),
        (["x--a", "x--b"], "x--a", ["x--a"]),
        (["x--a", "x--b"], "x--c", []),  # another node of the card
        (["x--a", "x--b"], "x", ["x--a", "x--b"]),  # from before each node was a device
        (["x", "y"], "x--a", ["x"]),
    ],
)
def test_so_is_a_device_of_a_type(ids: list[str], allocated: str, held: list[str]) -> None:
    devices = of_type(*(replace(NEC, id=each) for each in ids))
    names = held_by_plugin(devices, [("device.accelbind.dev/nec-ve", allocated)])
    assert names == {f"nec-ve-{each.replace('--', '-')}" for each in held}
