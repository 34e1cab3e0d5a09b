"""Why a type matches nothing: the nearest device that it doesn't name."""

from pathlib import Path
from typing import Any

import pytest

from services.devices.hardware.sysfs import Sysfs
from services.devices.types.discover import SysTree
from services.devices.types.misses import find_misses
from simulator.devices import DeviceTree
from tests.services.devices.types.making import type_of

IDS = {"vendor": ["1e60"], "device": ["2864"]}


@pytest.fixture
def tree(tmp_path: Path) -> SysTree:
    made = DeviceTree(tmp_path)
    hailo = made.pci("0000:01:00.0", "1e60:2864")
    made.bind(hailo, "hailo")
    made.entry(hailo, "hailo_chardev", "hailo0", "235:0")
    made.pci("0000:02:00.0", "10ee:5000")
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
        ({"class": {"name": "hailo_char"}}, 'no class "hailo_char"; there is "hailo_c'),
        (
            {"class": {"name": "hailo_chardev", "entry": ["h8*"]}},
            'class "hailo_chardev" has hailo0 (1e60:2864)',
        ),
        (
            {"class": {"name": "npu"}, "pci": {"vendor": ["10ee"], "device": ["5000"]}},
            'no class "npu"; PCI 10ee:5000 has no class and is bound to no driver',
        ),
        (
            {"pci": {"vendor": ["1e60"], "device": ["2865"]}},
            "of vendor 1e60 there is 0000:01:00.0 (1e60:2864)",
        ),
        ({"pci": {"vendor": ["abcd"]}}, "no PCI device of vendor abcd"),
        ({"pci": {"class": ["03"]}}, "no PCI device like it"),
        ({"usb": {"vendor": ["1a6e"], "product": ["0000"]}}, "of vendor 1a6e there is 3-1"),
        ({"usb": {"vendor": ["0bda"]}}, "no USB device of vendor 0bda"),
        ({"path": ["/dev/hailo1"]}, "no /dev/hailo1; there is /dev/hailo0"),
        ({"path": ["/dev/zzz*"]}, "no /dev/zzz*"),
    ],
)
def test_the_nearest_miss_is_named(tree: SysTree, match: dict[str, Any], text: str) -> None:
    nodes = [{"class": "x"}] if {*match} == {"pci"} else [{"own": True}]
    (miss,) = find_misses(tree, [type_of({"match": [match], "nodes": nodes})])
    assert miss.startswith(f"device type t matches nothing: {text}")


def test_of_several_terms_those_with_something_alike_are_named(tree: SysTree) -> None:
    terms = [{"class": {"name": "npu"}}, {"path": ["/dev/hailo1"]}]
    (miss,) = find_misses(tree, [type_of({"match": terms, "nodes": [{"class": "x"}]})])
    assert miss == "device type t matches nothing: no /dev/hailo1; there is /dev/hailo0"


def test_a_type_that_matches_has_no_miss(tree: SysTree) -> None:
    both = [{"class": {"name": "none"}}, {"pci": IDS, "class": {"name": "hailo_chardev"}}]
    assert [*find_misses(tree, [type_of({"match": both})])] == []
