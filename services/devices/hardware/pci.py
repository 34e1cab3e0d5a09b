"""PCI functions as sysfs shows them, their IOMMU groups, and the nodes that VFIO has of these."""

import re
from collections.abc import Iterator
from typing import Final

from services.devices.hardware.sysfs import Sysfs
from services.devices.model import PciFunction
from services.devices.nodes import FoundNode, Number, described_node, is_name
from services.devices.vfio import Group, GroupMember

DEVICES: Final = "/sys/bus/pci/devices"
_GROUPS: Final = "/sys/kernel/iommu_groups"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INNERMOST = re.compile(rf"((?:.*/)?({_ADDRESS.pattern}))(?:/.*)?", re.DOTALL)
_ROOT = re.compile(r"/sys/devices/(?:[^/]+/)*?(pci[0-9a-f]{4,8}:[0-9a-f]{2})/.*", re.DOTALL)
_HEX = re.compile(r"(?:0x)?([0-9a-f]+)")
_NUMBER = re.compile(r"[0-9]{1,6}")


def address_in(path: str) -> tuple[str, str]:
    """The innermost PCI address among the folders of a path, and the path up to it, or empty."""
    # A card's folder is below that of its function, and that below those of bridges.
    match = _INNERMOST.fullmatch(path)
    return (match[2], match[1]) if match else ("", "")


def read_function(files: Sysfs, address: str, folder: str | None = None) -> PciFunction:
    """Read a function, physical or virtual; without its folder it is looked up on the PCI bus."""
    if folder is None:
        folder = files.resolve(f"{DEVICES}/{address}")
    if not folder:
        return PciFunction(address)
    return PciFunction(
        address,
        numa_node(files, folder),
        address_in(files.link(f"{folder}/physfn"))[0] or None,
        read_hex(files, f"{folder}/vendor"),
        read_hex(files, f"{folder}/device"),
        pcie_root(folder),
    )


def numa_node(files: Sysfs, folder: str) -> int | None:
    """The NUMA node of a function's folder."""
    text = files.text(f"{folder}/numa_node")  # -1 for an unknown one
    return int(text) if _NUMBER.fullmatch(text) else None


def read_ids(files: Sysfs, folder: str, which: str = "") -> str:
    """Vendor and device id, `8086:1771`, empty if unreadable; `which` may be `subsystem_`."""
    ids = [read_hex(files, f"{folder}/{which}{name}") for name in ("vendor", "device")]
    return ":".join(ids) if all(ids) else ""


def read_hex(files: Sysfs, path: str) -> str:
    """The digits of a number in hex, without `0x`; empty if it is none."""
    match = _HEX.fullmatch(files.text(path).lower())
    return match[1] if match else ""


def pcie_root(folder: str) -> str:
    """The PCIe root above a resolved folder, `pci0000:3a`; empty if there is none."""
    match = _ROOT.fullmatch(folder)
    return match[1] if match else ""


# IOMMU groups ------------------------------------------------------------------------------------


def found_node(files: Sysfs, name: str, number: Number | None, subsystem: str) -> FoundNode:
    """The device node at the place that sysfs describes."""
    if not is_name(name):
        return FoundNode(name, number, subsystem)
    return FoundNode(
        name,
        number,
        subsystem,
        files.node_problem(name),
        files.node_number(name),
        files.node_target(name),
    )


def group_of(files: Sysfs, function: str) -> str:
    """The IOMMU group of a PCI function's folder, empty without one."""
    return files.link(f"{function}/iommu_group").rpartition("/")[2]


def group_nodes(files: Sysfs, group: str) -> list[FoundNode]:
    """The nodes of a group: its own, and that of VFIO."""
    nodes = []
    for subsystem, entry in (("vfio", group), ("misc", "vfio")):
        folder = files.resolve(f"/sys/class/{subsystem}/{entry}")
        name, number = described_node(files.text(f"{folder}/uevent")) if folder else ("", None)
        nodes.append(found_node(files, name or f"vfio/{entry}", number, subsystem))
    return nodes


def read_group(files: Sysfs, function: str) -> Group:
    """The IOMMU group of a PCI function's folder; without a number if it is in none."""
    number = group_of(files, function)
    if not number:
        return Group()
    name = files.text(f"{_GROUPS}/{number}/name")
    return Group(number, name, tuple(_members(files, number)))


def _members(files: Sysfs, group: str) -> Iterator[GroupMember]:
    """Yield the functions of a group; found by their links where it has no folder of its own."""
    names = files.names_if_listable(f"{_GROUPS}/{group}/devices")
    for name in sorted(names or files.names_if_listable(DEVICES)):
        folder = files.resolve(f"{DEVICES}/{name}")
        if folder is None and names:  # no PCI function, such as a device of the platform
            folder = files.resolve(f"{_GROUPS}/{group}/devices/{name}")
        if folder and (names or group_of(files, folder) == group):
            pci_class = read_hex(files, f"{folder}/class")
            driver = files.link(f"{folder}/driver").rpartition("/")[2]
            yield GroupMember(name, pci_class, driver)
