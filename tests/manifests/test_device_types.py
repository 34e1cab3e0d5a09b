"""The device types that are shipped, each on a tree as its driver makes it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.devices.types.making import Tree, Types
from tests.support import REPOSITORY

FOLDER = REPOSITORY / "manifests" / "device-types"
ADDRESS = "0000:21:00.1"
ID = "0000-21-00-1"


def npu(tree: Tree) -> str:
    """linux/drivers/accel/ivpu: the driver's name is intel_vpu, the node accel/accelN."""
    folder = tree.pci(ADDRESS, "8086:7d1d")
    tree.bind(folder, "intel_vpu")
    return tree.entry(folder, "accel", "accel0", "261:0", "accel/accel0")


def accel(tree: Tree) -> str:
    """linux/drivers/accel/qaic: Qualcomm's Cloud AI 100."""
    folder = tree.pci(ADDRESS, "17cb:a100")
    tree.bind(folder, "qaic")
    return tree.entry(folder, "accel", "accel0", "261:0", "accel/accel0")


def alveo(tree: Tree) -> str:
    """Xilinx/XRT, xocl_sysfs.c; ids and functions of an U55C as NRP documents them."""
    tree.bind(tree.pci("0000:21:00.0", "10ee:505c"), "xclmgmt")
    folder = tree.pci(ADDRESS, "10ee:505d", ready=1, dev_offline=0)
    tree.bind(folder, "xocl")
    tree.entry(folder, "drm", "renderD128", "226:128", "dri/renderD128")
    return f"{folder}/ready"


def vector_engine(tree: Tree) -> str:
    """hwloc's snapshot 32intel64-2p8co2t+8ve."""
    folder = tree.pci(ADDRESS, "1bcf:001c")
    entry = tree.entry(folder, "ve", "ve0", "238:0")
    tree.file(f"{entry}/ve_state", 1)
    tree.file(f"{entry}/os_state", 0)
    return f"{entry}/ve_state"


def xeon_phi(tree: Tree) -> str:
    """hwloc's snapshot 32em64t-2n8c+dax+nvme+mic+dimms: scif has no PCI function."""
    entry = tree.entry(tree.pci(ADDRESS, "8086:225c"), "mic", "mic0", "240:0", "mic/mic0")
    (tree.root / entry / "uevent").write_text("")
    tree.file(f"{entry}/state", "online")
    tree.entry("", "mic", "scif", "239:1", "mic/scif")
    return f"{entry}/state"


def render_node(tree: Tree) -> str:
    """linux/drivers/gpu/drm: a card node and a render node for each function."""
    folder = tree.pci(ADDRESS, "1002:73bf")
    tree.bind(folder, "amdgpu")
    tree.entry(folder, "drm", "card0", "226:0", "dri/card0")
    return tree.entry(folder, "drm", "renderD128", "226:128", "dri/renderD128")


def coral(tree: Tree) -> str:
    """coral.ai/docs/accelerator/get-started: the ids after the firmware was loaded."""
    return tree.usb("2-1", "18d1:9302", "bus/usb/002/004", "189:131")


def t4(tree: Tree) -> str:
    """docs.kernel.org/driver-api/vfio.html: a node of the group, and that of VFIO."""
    folder = tree.pci(ADDRESS, "10de:1eb8")
    tree.bind(folder, "vfio-pci")
    tree.group(folder, 12)
    tree.entry("", "misc", "vfio", "10:196", "vfio/vfio")
    return tree.entry("", "vfio", "12", "242:0", "vfio/12")


SHIPPED: dict[str, tuple[Callable[[Tree], str], str, list[str], str]] = {
    # what makes its tree, and the device's id, nodes, and reason when its state is bad
    "accel": (accel, ID, ["accel/accel0"], ""),
    "alveo-xrt": (alveo, ID, ["dri/renderD128"], "not-ready"),
    "coral-usb": (coral, "2-1", ["bus/usb/002/004"], ""),
    "gpu-render": (render_node, ID, ["dri/renderD128"], ""),
    "intel-npu": (npu, ID, ["accel/accel0"], ""),
    "nec-vector-engine": (vector_engine, ID, ["ve0"], "not-online"),
    "t4-vfio": (t4, ID, ["vfio/12", "vfio/vfio"], ""),
    "xeon-phi": (xeon_phi, ID, [], "not-online"),
}


def test_each_type_is_short_and_has_a_test() -> None:
    lengths = {path.stem: len(path.read_text().splitlines()) for path in FOLDER.glob("*.yaml")}
    assert lengths.keys() == SHIPPED.keys()
    assert {name: lines for name, lines in lengths.items() if lines > 20} == {}


@pytest.mark.parametrize("name", SHIPPED)
def test_each_type_serves_its_device(tmp_path: Path, name: str) -> None:
    make, device_id, nodes, reason = SHIPPED[name]
    tree = Tree(tmp_path / "root")
    state = make(tree)
    types = Types(tmp_path / "types", tree.root)
    types.write(f"{name}.yaml", (FOLDER / f"{name}.yaml").read_text())
    found = types.scan()
    assert found.problems == ()
    (device,) = [each for each in found.devices if each.resource]
    assert (device.id, device.healthy, device.type) == (device_id, True, name)
    assert [each.host for each in device.nodes] == nodes
    if reason:
        tree.file(state, 0)
        assert types.reasons()[device_id] == [reason]
