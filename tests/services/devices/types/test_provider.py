"""Devices that types find in sysfs: a snapshot of real hardware, and synthetic trees."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from services.containers.holders import Holder
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import DeviceNode
from services.node.ledger import World, step
from simulator.devices import DeviceTree
from tests.services.devices.types.making import Types, document

ADDRESS = "0000:b1:00.5"
ID = "0000-b1-00-5"


@pytest.fixture
def tree(tmp_path: Path) -> DeviceTree:
    return DeviceTree(tmp_path / "root")


@pytest.fixture
def types(tmp_path: Path, tree: DeviceTree) -> Types:
    return Types(tmp_path / "types", tree.root)


def write(types: Types, spec: dict[str, Any], name: str = "t") -> None:
    types.write(f"{name}.yaml", json.dumps(document(spec, name)))


def test_files_that_no_kernel_writes_take_nothing_from_others(
    tree: DeviceTree, types: Types
) -> None:
    for number, node in enumerate(("ami0", "a\0b", "../etc/shadow")):
        folder = tree.pci(f"0000:b{number}:00.0", "1bcf:001c", numa_node=10**20)
        tree.entry(folder, "ami", f"ami{number}", f"243:{number}", f"ami{number}")
        tree.file(f"{folder}/ami/ami{number}/uevent", f"MAJOR=243\nMINOR=0\nDEVNAME={node}")
    tree.entry("", "ami", os.fsdecode(b"\xff"), "243:9", "ami9")
    write(types, {"match": [{"class": {"name": "ami"}}]})
    assert types.reasons() == {
        "0000-b0-00-0": [],
        "0000-b1-00-0": ["node-missing"],
        "0000-b2-00-0": ["node-missing"],
    }
    assert {each.numa_node for each in types.scan().devices} == {None}


def test_types_are_read_again_when_they_change(tree: DeviceTree, types: Types) -> None:
    spec = {"match": [{"class": {"name": "misc", "entry": ["hw_random"]}}]}
    tree.entry("", "misc", "hw_random", "10:183", "hwrng")
    assert types.scan().devices == ()
    write(types, spec)
    (device,) = types.scan().devices
    assert (device.id, device.nodes) == ("hw-random", (DeviceNode("hwrng", "rw", (10, 183)),))
    assert types.provider.subsystems == {"misc", "pci", "usb", "vfio"}
    types.write("t.yaml", "kind: ")
    assert types.scan().devices == (device,), "a file may be half written"
    write(types, spec)
    types.write("bent.yaml", "kind: x")
    types.scan()
    found = types.scan()
    assert found.devices == (device,)
    assert {each.code for each in found.problems} == {"device-type-invalid"}
    assert found.problems[0].text.startswith("bent.yaml, line 1: kind: ")
    shutil.rmtree(types.folder)
    found = types.scan()
    assert found.devices == (device,)
    assert found.problems[0].code == "device-types-unreadable"


def test_a_device_that_another_type_serves_is_no_near_miss(tree: DeviceTree, types: Types) -> None:
    folder = tree.pci(ADDRESS, "8086:7d1d")
    tree.bind(folder, "intel_vpu")
    tree.entry(folder, "accel", "accel0", "261:0", "accel/accel0")
    tree.entry("", "accel", "accel1", "261:1", "accel/accel1")  # no driver can have it
    write(types, {"match": [{"class": {"name": "accel", "driver": ["qaic"]}}]}, "others")
    assert types.reasons() == {ID: ["not-matched"]}
    write(types, {"match": [{"class": {"name": "accel", "driver": ["intel_vpu"]}}]}, "npu")
    assert types.reasons() == {ID: []}


def test_entries_of_one_function_are_one_device_whose_id_stays(
    tree: DeviceTree, types: Types
) -> None:
    folder = tree.pci("0000:65:00.0", "1e52:401e")
    tree.entry("", "accel", "accel9", "261:9", "accel/accel9")
    write(
        types,
        {
            "match": [{"class": {"name": "accel"}, "pci": {"vendor": ["1e52"]}}],
            "attributes": [{"name": "ready", "file": "ready", "type": "bool"}],
            "health": [{"attribute": "ready", "equals": True, "reason": "not-ready"}],
        },
    )
    names, ready = [], {2: 1, 0: 0, 1: 1}
    for number, state in ready.items():
        entry = tree.entry(folder, "accel", f"accel{number}", f"261:{number}", f"accel/a{number}")
        tree.file(f"{entry}/ready", state)
        (device,) = types.scan().devices
        names.append((device.id, device.healthy, [each.name for each in device.nodes]))
    assert names == [
        ("0000-65-00-0", True, ["accel/a2"]),
        ("0000-65-00-0", False, ["accel/a0", "accel/a2"]),
        ("0000-65-00-0", False, ["accel/a0", "accel/a1", "accel/a2"]),
    ]
    (device,) = types.scan().devices
    assert device.claims == {"0000:65:00.0", "261:0", "261:1", "261:2"}


class NumberedFiles(Sysfs):
    """Files in the place of device nodes, which hold the numbers that the nodes would have."""

    def node_number(self, name: str) -> tuple[int, int] | None:
        major, _, minor = self.text(self.resolve(f"/dev/{name}") or "").partition(":")
        return (int(major), int(minor)) if minor else None


@pytest.mark.parametrize(
    ("parent", "name", "expected"),
    [
        ("platform/fe200000.gpio", "gpiochip0", ("fe200000-gpio", "")),
        ("platform/i2c-1/1-0048", "iio:device0", ("1-0048", "")),
        ("platform/hcd/usb1/1-1/1-1.2/1-1.2:1.0", "gpiochip1", ("1-1-2", "1-1.2")),
        ("platform/hcd/usb1/1-1/1-1:1.0/i2c-5/5-0048", "iio:device1", ("1-1", "1-1")),
        ("virtual", "gpiochip2", ("gpiochip2", "")),
    ],
)
def test_a_node_on_a_bus_is_named_by_the_device_above_it(
    tree: DeviceTree, tmp_path: Path, parent: str, name: str, expected: tuple[str, str]
) -> None:
    types = Types(tmp_path / "types", tree.root, files=NumberedFiles)
    folder = f"sys/devices/{parent}"
    if parent != "virtual":
        tree.link(f"{folder}/subsystem", "sys/bus/platform")
    tree.node(f"{folder}/{name}", name, "254:0")
    tree.link(f"{folder}/{name}/subsystem", "sys/bus/gpio")
    tree.file(f"dev/{name}", "254:0")
    env = [{"name": "PORT", "attribute": "usbPath"}]
    write(types, {"match": [{"path": [f"/dev/{name}"]}], "env": env})
    (device,) = types.scan().devices
    assert (device.id, dict(device.envs).get("PORT", "")) == expected


def test_of_entries_below_another_those_with_nodes_are_devices(
    tree: DeviceTree, types: Types
) -> None:
    interface = f"{tree.usb('3-2', '1235:8211', 'bus/usb/003/005', '189:260')}/3-2:1.0"
    tree.bind(interface, "snd-usb-audio", "usb")
    card = tree.entry(interface, "sound", "card1")
    for number, name in enumerate(("controlC1", "pcmC1D0p")):
        tree.entry(card, "sound", name, f"116:{number}", f"snd/{name}")
    gpu = tree.entry(tree.pci("0000:03:00.0", "1002:744c"), "drm", "card0", "226:0", "dri/card0")
    tree.entry(gpu, "drm", "card0-DP-1")
    own = {"class": {"name": "sound", "driver": ["snd-usb-*"]}}
    write(types, {"match": [own]}, "own")
    write(types, {"match": [{"usb": {"vendor": ["1235"]}}], "nodes": [{"class": "sound"}]}, "usb")
    write(types, {"match": [{"class": {"name": "drm"}}]}, "gpu")
    devices = types.scan().devices
    assert {each.type: (each.id, [node.name for node in each.nodes]) for each in devices} == {
        "own": ("3-2", ["snd/controlC1", "snd/pcmC1D0p"]),
        "usb": ("3-2", ["snd/controlC1", "snd/pcmC1D0p"]),
        "gpu": ("0000-03-00-0", ["dri/card0"]),
    }
    assert not any(each.reasons for each in devices)


@pytest.mark.parametrize(
    "path", ["link/state", "driver/state", "outside", "physfn/shadow", "secret/shadow", "st*"]
)
def test_attributes_stay_below_the_device(tree: DeviceTree, types: Types, path: str) -> None:
    folder = tree.pci(ADDRESS, "8086:bccf", state=1, stop=1)
    tree.file("etc/shadow", "1")
    tree.file(f"{folder}/elsewhere/state", "1")
    tree.file("sys/bus/pci/drivers/d/state", "1")
    tree.bind(folder, "d")
    tree.link(f"{folder}/link", f"{folder}/elsewhere")
    tree.link(f"{folder}/outside", "etc/shadow")
    tree.link(f"{folder}/secret", "etc")
    tree.link(f"{folder}/physfn", "etc")
    tree.entry(folder, "ve", "ve0", "238:0")
    write(
        types,
        {
            "match": [{"pci": {"vendor": ["8086"]}}],
            "nodes": [{"class": "ve"}],
            "attributes": [{"name": "state", "file": path, "type": "int"}],
            "health": [{"attribute": "state", "equals": 1, "reason": "bad"}],
        },
    )
    assert types.reasons() == {ID: ["attribute-unreadable"]}


def test_the_physical_function_and_the_device_may_be_read(tree: DeviceTree, types: Types) -> None:
    physical = tree.pci("0000:b1:00.0", "8086:bcce", mode=7)
    virtual = tree.pci(ADDRESS, "8086:bccf")
    tree.link(f"{virtual}/physfn", physical)
    tree.entry(virtual, "ve", "ve0", "238:0")
    term = {"class": {"name": "ve"}, "pci": {"vendor": ["8086"], "virtualFunction": True}}
    write(
        types,
        {
            "match": [term],
            "attributes": [{"name": "mode", "file": "device/physfn/mode", "type": "int"}],
            "env": [{"name": "MODE", "attribute": "mode"}],
        },
    )
    (device,) = types.scan().devices
    assert dict(device.envs)["MODE"] == "7"


def test_one_of_several_terminals_is_named_by_its_interface(tree: DeviceTree, types: Types) -> None:
    folder = tree.usb("3-1.2", "2c7c:0125", "bus/usb/003/004", "189:259")
    for number in range(4):
        name = f"ttyUSB{number + 4}"
        tree.entry(f"{folder}/3-1.2:1.{number}/{name}", "tty", name, f"188:{number}")
    term = {
        "usb": {"vendor": ["2c7c"]},
        "class": {"name": "tty"},
        "where": [{"attribute": "usbInterface", "equals": 2}],
    }
    write(types, {"match": [term], "nodes": [{"own": True, "as": "/dev/modem0"}]})
    (device,) = types.scan().devices
    assert (device.id, [each.name for each in device.nodes]) == ("3-1-2", ["ttyUSB6"])
    write(types, {"match": [term | {"class": {"name": "none"}}, {"usb": {"vendor": ["2c7c"]}}]})
    (device,) = types.scan().devices
    assert [each.name for each in device.nodes] == ["bus/usb/003/004"]


CARD = {
    "match": [{"pci": {"vendor": ["10ee"]}}],
    "attributes": [{"name": "ready", "file": "ready", "type": "bool"}],
    "health": [{"attribute": "ready", "equals": True, "reason": "not-ready"}],
    "nodes": [{"class": "xdma", "entry": ["xdma*_h2c_*"]}],
    "each": "node",
}


def channels(tree: DeviceTree, count: int = 3) -> str:
    folder = tree.pci(ADDRESS, "10ee:903f", ready=1)
    for number in range(count):
        name = f"xdma0_h2c_{number}"
        tree.entry(folder, "xdma", name, f"241:{number}", name)
    tree.entry(folder, "xdma", "xdma0_control", "241:90")
    return folder


def test_each_node_of_a_card_is_a_device_of_its_own(tree: DeviceTree, types: Types) -> None:
    folder = channels(tree)
    write(types, CARD)
    devices = [*types.offer().devices()]
    ids = [f"{ID}--xdma0-h2c-{number}" for number in range(3)]
    assert [each.id for each in devices] == ids
    assert [each.card for each in devices] == [f"xdma0_h2c_{number}" for number in range(3)]
    assert [[node.name for node in each.nodes] for each in devices] == [
        [f"xdma0_h2c_{number}"] for number in range(3)
    ]
    assert {(each.pci_addresses, each.card_id) for each in devices} == {((ADDRESS,), ID)}
    tree.file(f"{folder}/ready", 0)
    assert types.reasons() == {key: ["not-ready"] for key in ids}


def test_a_card_whose_driver_has_made_no_nodes_yet_is_listed(
    tree: DeviceTree, types: Types
) -> None:
    channels(tree, 0)
    write(types, CARD)
    assert types.reasons() == {ID: ["node-missing"]}
    write(types, CARD | {"nodes": [{"class": "xdma", "entry": ["x"], "optional": True}]})
    types.scan()
    assert types.reasons() == {ID: ["not-matched"]}


@pytest.mark.parametrize(
    ("each", "held", "unhealthy"),
    [
        ("node", f"{ID}--xdma0-h2c-0", []),
        ("node", f"{ID}--gone", []),  # another node
        ("node", ID, [0, 1]),  # before it was each node
        ("device", ID, []),
        ("device", f"{ID}--xdma0-h2c-1", [0]),  # when it was each node
        ("device", f"{ID}--xdma0-h2c-1-r3", [0]),
    ],
)
def test_a_card_whose_node_a_container_has_is_not_handed_out_as_a_whole(
    tree: DeviceTree, types: Types, each: str, held: str, unhealthy: list[int]
) -> None:
    channels(tree, 2)
    write(types, CARD | {"each": each})
    resource = "device.accelbind.dev/t"
    types.scan()
    holders = {(resource, held): (Holder("ns", "pod", "container"),)}
    world = World(holders=holders, types=asyncio.run(types.provider.read([*holders])))
    offered = step(types.ledger, world, 0).offer.devices()
    assert [n for n, device in enumerate(offered) if not device.healthy] == unhealthy


def test_two_types_do_not_have_nodes_of_one_card(tree: DeviceTree, types: Types) -> None:
    channels(tree, 1)
    write(types, CARD, "one")
    write(types, CARD | {"nodes": [{"class": "xdma", "entry": ["*control"]}]}, "two")
    offer = types.offer()
    assert [*offer.devices()] == []
    assert [each.reasons[0].code for each in offer.not_offered] == ["claimed-twice"] * 2


def vfio(tree: DeviceTree, group: int) -> None:
    tree.entry("", "vfio", str(group), f"242:{group}", f"vfio/{group}")
    if not (tree.root / "sys/class/misc/vfio").exists():
        tree.entry("", "misc", "vfio", "10:196", "vfio/vfio")


def test_an_iommu_group_is_one_device(tree: DeviceTree, types: Types) -> None:
    functions = {f"0000:b1:00.{n}": tree.pci(f"0000:b1:00.{n}", "8086:bccf") for n in range(3, 7)}
    for address, group in zip(functions, (12, 12, 13, 14), strict=True):
        tree.group(functions[address], group)
    term = {"pci": {"vendor": ["8086"], "device": ["bccf"], "driver": ["vfio-pci"]}}
    write(types, {"match": [term], "nodes": [{"vfio": True}]})
    unbound = types.scan().devices
    assert [each.reasons[0].code for each in unbound] == ["not-matched"] * 3
    for address in list(functions)[:3]:
        tree.bind(functions[address], "vfio-pci")
    vfio(tree, 12)
    assert types.reasons() == {
        "0000-b1-00-3": [],
        "0000-b1-00-5": ["node-missing"],
        "0000-b1-00-6": ["not-matched"],
    }
    vfio(tree, 13)
    first, second, _ = types.scan().devices
    assert [each.name for each in first.nodes] == ["vfio/12", "vfio/vfio"]
    assert first.claims == {"0000:b1:00.3", "0000:b1:00.4", "242:12"}
    assert first.pci_addresses == ("0000:b1:00.3", "0000:b1:00.4")
    assert [each.id for each in (first, second)] == ["0000-b1-00-3", "0000-b1-00-5"]
    assert not types.offer().not_offered[0].resource
    tree.file("sys/kernel/iommu_groups/13/name", "vfio-noiommu")
    assert types.reasons()["0000-b1-00-5"] == ["vfio-no-group"]
