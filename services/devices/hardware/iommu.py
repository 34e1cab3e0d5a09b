"""IOMMU groups as sysfs shows them: which functions are in one, and the nodes that VFIO has."""

from collections.abc import Iterator
from typing import Final

from services.devices.hardware.pci import DEVICES, read_hex
from services.devices.hardware.sysfs import Sysfs
from services.devices.nodes import FoundNode, Number, described_node, is_name
from services.devices.vfio import Group, GroupMember

_GROUPS: Final = "/sys/kernel/iommu_groups"


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
