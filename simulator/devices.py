"""Synthetic devices other than FPGAs: a `sys` and a `dev` folder as their drivers make them.

A `DeviceTree` may be changed while others read it: files change in one step, devices come and go.
`DEVICES` has a device for each device type that is shipped, with the source of what it looks like.
"""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

_STAGING = ".staging"


class DeviceTree:
    """Files below a root, as sysfs has them.

    Device nodes are regular files, or character devices with `devices`, which needs CAP_MKNOD.
    Folders are named without a leading slash.
    """

    def __init__(self, root: Path, *, devices: bool = False) -> None:
        self.root = root
        self._devices = devices
        for folder in ("dev", "sys", _STAGING):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def file(self, path: str, text: object) -> None:
        self.replace(path, lambda staged: staged.write_text(f"{text}\n"))

    def link(self, path: str, target: str) -> None:
        """Make a link below the root to a path below the root."""
        upwards = Path(*[".."] * path.count("/"))
        self.replace(path, lambda staged: staged.symlink_to(upwards / target))

    def replace(self, path: str, make: Callable[[Path], object]) -> None:
        """Replace a path by what `make` makes, in one step if that is a file or a link."""
        staged, place = self._staged(), self.root / path  # in sysfs nobody reads half a file
        make(staged)
        made = os.path.lexists(staged)
        if not made or staged.is_dir() or (place.is_dir() and not place.is_symlink()):
            self.discard(path)
        if made:
            place.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(place)

    def discard(self, path: str) -> None:
        """Remove a file, a link or a folder with all that is in it, in one step."""
        place = self.root / path
        if place.is_dir() and not place.is_symlink():
            gone = self._staged()
            place.rename(gone)
            shutil.rmtree(gone)
        else:
            place.unlink(missing_ok=True)

    def _staged(self) -> Path:
        return self.root / _STAGING / uuid4().hex

    def pci(self, address: str, ids: str, **files: object) -> str:
        """Add a PCI function with `vendor:device`; its folder."""
        folder = f"sys/devices/pci{address[:7]}/{address}"
        vendor, device = ids.split(":")
        known = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": "0x120000"}
        for name, text in (known | {"numa_node": -1} | files).items():
            self.file(f"{folder}/{name}", text)
        self.link(f"sys/bus/pci/devices/{address}", folder)
        return folder

    def usb(self, port: str, ids: str, node: str, number: str, **files: object) -> str:
        """Add a USB device, with the node that the bus gives it; its folder."""
        folder = f"sys/devices/pci0000:00/0000:00:14.0/usb{port[0]}/{port}"
        vendor, product = ids.split(":")
        for name, text in ({"idVendor": vendor, "idProduct": product} | files).items():
            self.file(f"{folder}/{name}", text)
        self.node(folder, node, number)
        self.link(f"sys/bus/usb/devices/{port}", folder)
        return folder

    def bind(self, folder: str, driver: str, bus: str = "pci") -> None:
        self.link(f"{folder}/driver", f"sys/bus/{bus}/drivers/{driver}")

    def group(self, folder: str, group: int) -> None:
        members = f"sys/kernel/iommu_groups/{group}/devices"
        self.link(f"{folder}/iommu_group", f"sys/kernel/iommu_groups/{group}")
        self.link(f"{members}/{Path(folder).name}", folder)

    def entry(self, parent: str, cls: str, name: str, number: str = "", node: str = "") -> str:
        """Add a class entry of a device; its folder. No parent: a virtual one; no number: no node.

        A parent of the class has it right below, as a sound card has its streams.
        """
        is_part = f"/{cls}/" in parent
        folder = f"{parent or 'sys/devices/virtual'}{'' if is_part else f'/{cls}'}/{name}"
        if number:
            self.node(folder, node or name, number)
        self.link(f"{folder}/subsystem", f"sys/class/{cls}")
        if parent:
            self.link(f"{folder}/device", parent)
        self.link(f"sys/class/{cls}/{name}", folder)
        return folder

    def node(self, folder: str, node: str, number: str) -> None:
        """Give a device a node below `/dev`, with a number as `major:minor`."""
        major, minor = number.split(":")
        self.file(f"{folder}/dev", number)
        self.file(f"{folder}/uevent", f"MAJOR={major}\nMINOR={minor}\nDEVNAME={node}")
        self.link(f"sys/dev/char/{number}", folder)
        if self._devices:
            device = os.makedev(int(major), int(minor))
            self.replace(f"dev/{node}", lambda staged: _make_device(staged, device))
        else:
            self.file(f"dev/{node}", "")

    def remove(self, folder: str) -> None:
        """Unplug a device: links to what is in its folder go first, then its nodes and files."""
        place = self.root / folder
        for link in (
            *self.root.glob("sys/bus/*/devices/*"),
            *self.root.glob("sys/class/*/*"),
            *self.root.glob("sys/dev/char/*"),
            *self.root.glob("sys/kernel/iommu_groups/*/devices/*"),
        ):
            if (link.parent / link.readlink()).resolve().is_relative_to(place.resolve()):
                link.unlink()
        for uevent in place.rglob("uevent"):
            name = uevent.read_text().partition("DEVNAME=")[2].strip()
            if name:
                self.discard(f"dev/{name}")
        self.discard(folder)


def _make_device(path: Path, number: int) -> None:
    os.mknod(path, stat.S_IFCHR, number)
    path.chmod(0o666)


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """A device in a tree, and how a plugin offers it."""

    id: str
    nodes: tuple[str, ...]
    folders: tuple[str, ...]
    """What it is in sysfs."""
    state: str = ""
    """The file that says whether it is healthy, if there is one."""
    good: str = ""
    bad: str = ""
    """What the file holds if it is, and if it isn't."""
    reason: str = ""
    """Why it is unhealthy then."""

    def remove(self, tree: DeviceTree) -> None:
        for folder in self.folders:
            tree.remove(folder)


def _id(number: int) -> tuple[str, str]:
    """The PCI address of a number, and the id of a device there."""
    address = f"0000:{number + 1:02x}:00.0"
    return address, address.replace(":", "-").replace(".", "-")


def npu(tree: DeviceTree, number: int) -> SimulatedDevice:
    """linux/drivers/accel/ivpu: the driver's name is intel_vpu, the node accel/accelN."""
    return _accel(tree, number, "8086:7d1d", "intel_vpu")


def cloud_ai(tree: DeviceTree, number: int) -> SimulatedDevice:
    """linux/drivers/accel/qaic: Qualcomm's Cloud AI 100."""
    return _accel(tree, number, "17cb:a100", "qaic")


def _accel(tree: DeviceTree, number: int, ids: str, driver: str) -> SimulatedDevice:
    address, device_id = _id(number)
    folder = tree.pci(address, ids, numa_node=number % 2)
    tree.bind(folder, driver)
    node = f"accel/accel{number}"
    tree.entry(folder, "accel", f"accel{number}", f"261:{number}", node)
    return SimulatedDevice(device_id, (node,), (folder,))


def alveo(tree: DeviceTree, number: int) -> SimulatedDevice:
    """Xilinx/XRT, xocl_sysfs.c; ids and functions of an U55C as NRP documents them."""
    address, device_id = _id(number)
    management = tree.pci(f"{address[:-1]}1", "10ee:505c")
    tree.bind(management, "xclmgmt")
    folder = tree.pci(address, "10ee:505d", ready="0x1", dev_offline=0)
    tree.bind(folder, "xocl")
    node = _render_node(tree, folder, number)
    return SimulatedDevice(
        device_id, (node,), (folder, management), f"{folder}/ready", "0x1", "0x0", "not-ready"
    )


def gpu(tree: DeviceTree, number: int) -> SimulatedDevice:
    """linux/drivers/gpu/drm: a card node and a render node for each function."""
    address, device_id = _id(number)
    folder = tree.pci(address, "1002:73bf", **{"class": "0x030000"})
    tree.bind(folder, "amdgpu")
    tree.entry(folder, "drm", f"card{number}", f"226:{number}", f"dri/card{number}")
    return SimulatedDevice(device_id, (_render_node(tree, folder, number),), (folder,))


def _render_node(tree: DeviceTree, folder: str, number: int) -> str:
    name = f"renderD{128 + number}"
    tree.entry(folder, "drm", name, f"226:{128 + number}", f"dri/{name}")
    return f"dri/{name}"


def vector_engine(tree: DeviceTree, number: int) -> SimulatedDevice:
    """Hwloc's snapshot 32intel64-2p8co2t+8ve."""
    address, device_id = _id(number)
    folder = tree.pci(address, "1bcf:001c", numa_node=number % 2)
    tree.bind(folder, "ve_drv")
    entry = tree.entry(folder, "ve", f"ve{number}", f"238:{number}")
    tree.file(f"{entry}/ve_state", 1)
    tree.file(f"{entry}/os_state", 0)
    state = f"{entry}/os_state"
    return SimulatedDevice(device_id, (f"ve{number}",), (folder,), state, "0", "2", "os-not-online")


def xeon_phi(tree: DeviceTree, number: int) -> SimulatedDevice:
    """Hwloc's snapshot 32em64t-2n8c+dax+nvme+mic+dimms: cards have no nodes."""
    address, device_id = _id(number)
    folder = tree.pci(address, "8086:225c")
    entry = f"{folder}/mic/mic{number}"
    tree.file(f"{entry}/uevent", "")
    tree.file(f"{entry}/state", "online")
    tree.link(f"sys/class/mic/mic{number}", entry)
    return SimulatedDevice(
        device_id, (), (folder,), f"{entry}/state", "online", "lost", "not-online"
    )


def coral(tree: DeviceTree, number: int) -> SimulatedDevice:
    """coral.ai/docs/accelerator/get-started: the ids after the firmware was loaded."""
    port, node = f"2-{number + 1}", f"bus/usb/002/{number + 2:03}"
    folder = tree.usb(port, "18d1:9302", node, f"189:{129 + number}")
    return SimulatedDevice(port, (node,), (folder,))


def t4(tree: DeviceTree, number: int) -> SimulatedDevice:
    """docs.kernel.org/driver-api/vfio.html: a node of the group, and that of VFIO."""
    address, device_id = _id(number)
    folder = tree.pci(address, "10de:1eb8")
    tree.bind(folder, "vfio-pci")
    tree.group(folder, number)
    if not (tree.root / "sys/class/misc/vfio").exists():
        tree.entry("", "misc", "vfio", "10:196", "vfio/vfio")
    group = tree.entry("", "vfio", str(number), f"242:{number}", f"vfio/{number}")
    return SimulatedDevice(device_id, (f"vfio/{number}", "vfio/vfio"), (folder, group))


DEVICES: dict[str, Callable[[DeviceTree, int], SimulatedDevice]] = {
    "accel": cloud_ai,
    "alveo-xrt": alveo,
    "coral-usb": coral,
    "gpu-render": gpu,
    "intel-npu": npu,
    "nec-vector-engine": vector_engine,
    "t4-vfio": t4,
    "xeon-phi": xeon_phi,
}
"""What makes a device for the type of this name; the number is no other device's of the tree."""
