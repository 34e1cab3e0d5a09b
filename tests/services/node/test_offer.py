"""What was offered, to bytes and back; and bytes that are anything else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.devices.model import Device, Inventory, PluginMode, Problem
from services.devices.resources import OfferMemory, advertise
from services.node.offer import MAX_BYTES, MAX_RESOURCES, decode, encode, offered

PLACE = "0000:5e:00.0"
RESOURCE = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"


def device(**values: Any) -> Device:
    told: dict[str, Any] = {
        "id": "dfl-port.0",
        "resource": RESOURCE,
        "healthy": False,
        "nodes": ("dfl-port.0", "dfl-fme.0"),
        "numa_node": 1,
        "pci_addresses": (PLACE,),
        "card": "region0",
        "interface_id": "ce48969398f05f33946d560708be108a",
        "afu_ids": ("",),
    }
    return Device(**(told | values))


def memory(*devices: Device, mode: PluginMode = PluginMode.AF) -> OfferMemory:
    return OfferMemory(mode, {(each.id, PLACE): each for each in devices})


def altered(**values: Any) -> bytes:
    document = json.loads(encode(memory(device())))
    document["devices"][0] |= values
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "kept",
    [
        device(),
        device(resource="b-com.com/accelerator", id="5e:00.0-1", numa_node=None, afu_ids=()),
        device(interface_id="", nodes=(), pci_addresses=()),
    ],
)
def test_what_was_offered_comes_back(kept: Device) -> None:
    assert decode(encode(memory(kept))) == memory(kept)


def test_health_and_functions_are_not_remembered() -> None:
    well = device(healthy=True, afu_ids=("d8424dc4a4a3c413f89e433683f9040b",))
    ill = device(reasons=(Problem("afu-id-empty", "text"),))
    assert encode(memory(well)) == encode(memory(ill)) == encode(memory(device()))


@pytest.mark.parametrize("mode", [PluginMode.AF, PluginMode.REGION])
def test_the_resources_that_were_offered_are_known_in_any_mode(mode: PluginMode) -> None:
    others = (device(id=f"dfl-port.{number}", resource=RESOURCE + "a") for number in (1, 2))
    kept = decode(encode(memory(device(), *others, mode=mode)))
    assert kept is not None
    assert kept.mode is mode
    assert offered(kept) == {RESOURCE, RESOURCE + "a"}


def test_units_were_offered_in_mode_units() -> None:
    assert offered(OfferMemory(PluginMode.UNITS)) == {"b-com.com/accelerator"}


def test_no_more_resources_are_ended_than_fit_into_memory() -> None:
    many = (device(id=f"p{number}", resource=f"{RESOURCE}{number}") for number in range(999))
    assert len(offered(memory(*many))) == MAX_RESOURCES


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b'{"mode": "af", "devices": 7}',
        b'{"mode": "af", "devices": ["dfl-port.0"]}',
        b'{"mode": "none", "devices": []}',
        b"[" * 100_000,
        b" " * (MAX_BYTES + 1),
        altered(id="../../etc"),
        altered(id=7),
        altered(place=""),
        altered(resource="example.com/gpu"),
        altered(resource="fpga.intel.com/af-"),
        altered(nodes=[["../mem", "rw"]]),
        altered(nodes=[["dfl-port.0", "rwx"]]),
        altered(nodes=[["dfl-port.0"]]),
        altered(numa=-1),
        altered(numa=1 << 40),
        altered(numa=float("inf")),
        altered(afus=-1),
        altered(afus=1 << 40),
        altered(pci=["/"]),
        altered(card="a b"),
        altered(interface="G"),
    ],
)
def test_what_is_no_memory_is_none(content: bytes) -> None:
    assert decode(content) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["id", "place", "resource", "nodes", "numa", "pci", "card", "afus"]),
)
def test_no_value_of_any_field_is_an_error(value: Any, field: str) -> None:
    found = decode(altered(**{field: value}))
    assert found is None or isinstance(found, OfferMemory)


def test_units_are_always_there_and_are_not_remembered() -> None:
    units = advertise(Inventory(), PluginMode.UNITS, units=3).memory
    assert units.devices
    assert decode(encode(units)) == OfferMemory(PluginMode.UNITS)
