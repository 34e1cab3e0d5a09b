"""Whether a device is of a type, and how near it comes."""

from pathlib import Path
from typing import Any

import pytest

from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Value
from services.devices.types.discover import SysTree
from services.devices.types.match import is_named, mismatch
from services.devices.types.misses import find_misses
from simulator.devices import DeviceTree
from tests.services.devices.types.making import type_of
from tests.services.devices.types.test_provider import NumberedFiles

CARD: dict[str, Value] = {
    "class": "pci",
    "kernelName": "0000:b1:00.5",
    "vendorID": "8086",
    "deviceID": "bccf",
    "subsystemID": "8086:1771",
    "pciClass": "120000",
    "kernelDriver": "vfio-pci",
    "virtualFunction": True,
    "numaNode": 1,
}
ACCEL: dict[str, Value] = CARD | {"class": "accel", "kernelName": "accel0"}
CORAL: dict[str, Value] = {"vendorID": "18d1", "deviceID": "9302", "usbSerial": "A-1"}
PCI = {"vendor": ["8086"]}


def terms(*match: dict[str, Any]) -> Any:
    vfio = {"nodes": [{"vfio": True}]} if all("pci" in x and len(x) < 3 for x in match) else {}
    plain = {} if any("class" in x or "usb" in x for x in match) else vfio
    return type_of({"match": match} | plain).spec.match


@pytest.mark.parametrize(
    ("match", "facts", "named"),
    [
        ({"pci": PCI | {"device": ["ffff", "bccf"]}}, CARD, True),
        ({"pci": PCI | {"device": ["ffff"]}}, CARD, False),
        ({"pci": PCI | {"subsystem": ["8086:1770"]}}, CARD, False),
        ({"pci": {"class": ["12"]}}, CARD, True),
        ({"pci": {"class": ["0604", "0300"]}}, CARD, False),
        ({"pci": PCI | {"virtualFunction": False}}, CARD, False),
        ({"pci": PCI | {"virtualFunction": True}}, {"vendorID": "8086"}, False),
        ({"class": {"name": "accel", "entry": ["accel*"]}, "pci": PCI}, ACCEL, True),
        ({"class": {"name": "accel", "entry": ["card*"]}}, ACCEL, False),
        ({"class": {"name": "drm"}}, ACCEL, False),
        ({"usb": {"vendor": ["18d1"], "product": ["9302"], "serial": ["A-*"]}}, CORAL, True),
        ({"path": ["/dev/ami0"]}, {}, True),
    ],
)
def test_every_field_of_a_term_holds(
    match: dict[str, Any], facts: dict[str, Value], *, named: bool
) -> None:
    assert is_named(terms(match)[0], facts.get) is named
    assert mismatch(terms(match), facts.get) == (None if named else "")


def test_a_serial_number_is_read_of_one_device_after_the_other() -> None:
    other = terms({"usb": {"vendor": ["18d1"], "serial": ["B*"]}})
    assert is_named(other[0], CORAL.get)
    assert mismatch(other, CORAL.get) == 'its serial number is "A-1", not B*'
    bare = {key: value for key, value in CORAL.items() if key != "usbSerial"}
    assert mismatch(other, bare.get) == "its serial number is none, not B*"


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ({"driver": ["vfio-*", "x"]}, None),
        ({"driver": ["dfl-pci", "uio"]}, "it is bound to vfio-pci, not to dfl-pci or uio"),
        ({"attribute": "numaNode", "equals": 1}, None),
        ({"attribute": "numaNode", "oneOf": [0, 2]}, "numaNode is 1, not 0 or 2"),
        ({"attribute": "numaNode", "min": 2}, "numaNode is 1, not at least 2"),
        ({"attribute": "numaNode", "max": 0}, "numaNode is 1, not at most 0"),
        ({"attribute": "numaNode", "min": 2, "max": 3}, "numaNode is 1, not from 2 to 3"),
        ({"attribute": "numaNode", "min": 1, "max": 1}, None),
        ({"attribute": "numaNode", "min": 0}, None),
        ({"attribute": "kernelName", "glob": "0000:*"}, None),
        ({"attribute": "kernelName", "glob": "x*"}, 'kernelName is "0000:b1:00.5", not x*'),
        ({"attribute": "virtualFunction", "equals": False}, "virtualFunction is true, not false"),
        ({"attribute": "usbSerial", "equals": "a"}, 'usbSerial is missing, not "a"'),
    ],
)
def test_a_device_with_another_driver_or_state_is_near(
    term: dict[str, Any], message: str | None
) -> None:
    match = {"pci": PCI | term} if "driver" in term else {"pci": PCI, "where": [term]}
    assert is_named(terms(match)[0], CARD.get)
    assert mismatch(terms(match), CARD.get) == message


def test_terms_are_alternatives_and_the_nearest_is_named() -> None:
    away, near, right = {"vendor": ["10ee"]}, PCI | {"driver": ["no"]}, PCI
    assert mismatch(terms({"pci": away}, {"pci": right}, {"pci": near}), CARD.get) is None
    unbound = {"vendorID": "8086"}
    found = mismatch(terms({"pci": away}, {"pci": near}, {"pci": away}), unbound.get)
    assert found == "it is bound to no driver, not to no"


# The nearest device that a type doesn't name


IDS = {"vendor": ["1e60"], "device": ["2864"]}


@pytest.fixture
def tree(tmp_path: Path) -> SysTree:
    made = DeviceTree(tmp_path)
    hailo = made.pci("0000:01:00.0", "1e60:2864")
    made.bind(hailo, "hailo")
    made.entry(hailo, "hailo_chardev", "hailo0", "235:0")
    made.pci("0000:02:00.0", "10ee:5000")
    for name in ("autofs", "btrfs-control", "cpu_dma_latency", "fuse", "kvm"):
        made.entry("", "misc", name, "10:1")
    made.entry("", "dvb", "dvb0.frontend0", "212:3", "dvb/adapter0/frontend0")
    made.file("dev/unknown0", "")
    made.usb("3-1", "1a6e:089a", "bus/usb/003/002", "189:257")
    return SysTree(Sysfs(tmp_path))


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (
            {"class": {"name": "hailo"}, "pci": IDS},
            'no class "hailo"; PCI 1e60:2864 has class "hailo_chardev" and is bound to hailo',
        ),
        ({"class": {"name": "npu"}}, 'no class "npu"'),
        ({"class": {"name": "usb"}}, 'no class "usb"; bus usb has 3-1: match their nodes by path'),
        (
            {"class": {"name": "npu"}, "pci": {"vendor": ["10ee"], "device": ["5000"]}},
            'no class "npu"; PCI 10ee:5000 has no class and is bound to no driver',
        ),
        (
            {"pci": {"vendor": ["1e60"], "device": ["2865"]}},
            "of vendor 1e60 there is 0000:01:00.0 (1e60:2864)",
        ),
        ({"pci": {"class": ["03"]}}, "no PCI device like it"),
        ({"usb": {"vendor": ["1a6e"], "product": ["0000"]}}, "of vendor 1a6e there is 3-1"),
        ({"usb": {"vendor": ["0bda"]}}, "no USB device of vendor 0bda"),
        ({"path": ["/dev/hailo1"]}, "no /dev/hailo1; there is /dev/hailo0"),
        ({"path": ["/dev/zzz*"]}, "no /dev/zzz*"),
        ({"path": ["/dev/unknown*"]}, "sysfs does not know /dev/unknown0, so no pattern"),
        ({"class": {"name": "misc", "entry": ["kvn"]}}, 'class "misc" has kvm, '),
        (
            {"path": ["/dev/dvb/adapter0/frontent*"]},
            "no /dev/dvb/adapter0/frontent*; there is /dev/d",
        ),
        ({"path": ["/dev/hailo1/none/x"]}, "no /dev/hailo1/none/x; there is /dev/hailo0"),
        (
            {"pci": IDS | {"class": ["03"], "virtualFunction": True}},
            "0000:01:00.0 (1e60:2864) has pciClass 120000, not 03* and virtualFunction false, not",
        ),
        (
            {"pci": {"vendor": ["1e60"], "subsystem": ["1e60:0001"]}},
            "0000:01:00.0 (1e60:2864) has subsystemID none, not 1e60:0001",
        ),
    ],
)
def test_the_nearest_miss_is_named(tree: SysTree, match: dict[str, Any], text: str) -> None:
    nodes = [{"class": "x"}] if {*match} == {"pci"} else [{"own": True}]
    (miss,) = find_misses(tree, [type_of({"match": [match], "nodes": nodes})])
    assert miss.startswith(f"device type t matches nothing: {text}")


def test_a_path_to_a_device_with_other_ids_is_no_match(tmp_path: Path) -> None:
    made = DeviceTree(tmp_path)
    made.entry(made.pci("0000:01:00.0", "1e60:2864"), "media", "media0", "235:0")
    tree = SysTree(NumberedFiles(tmp_path))
    made.file("dev/media0", "235:0")
    ids = [{"attribute": "vendorID", "equals": "046d"}]
    of = type_of({"match": [{"path": ["/dev/media*"], "where": ids}]})
    (miss,) = find_misses(tree, [of])
    assert miss.endswith('of media0, vendorID is "1e60", not "046d"')
    assert mismatch(of.spec.match, tree.facts(tree.subjects(of.spec.match[0])[0])) == ""


def test_of_several_terms_those_with_something_alike_are_named(tree: SysTree) -> None:
    terms = [{"class": {"name": "npu"}}, {"path": ["/dev/hailo1"]}]
    (miss,) = find_misses(tree, [type_of({"match": terms, "nodes": [{"class": "x"}]})])
    assert miss == "device type t matches nothing: no /dev/hailo1; there is /dev/hailo0"


def test_a_type_that_matches_has_no_miss(tree: SysTree) -> None:
    both = [{"class": {"name": "none"}}, {"pci": IDS, "class": {"name": "hailo_chardev"}}]
    assert [*find_misses(tree, [type_of({"match": both})])] == []
