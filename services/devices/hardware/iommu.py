"""IOMMU groups as sysfs shows them: which functions are in one, and the nodes that VFIO has."""

from typing import Final

from services.devices.hardware.pci import DEVICES
from services.devices.hardware.sysfs import Sysfs
from services.devices.health import DeviceNodeState
from services.devices.nodes import FoundNode, Number, described_node
from services.devices.vfio import GroupMember

_GROUPS: Final = "/sys/kernel/iommu_groups"


def found_node(files: Sysfs, name: str, number: Number | None, subsystem: str) -> FoundNode:
    """What stands at the place of a node that sysfs describes."""
    state = files.node(name) if name else DeviceNodeState.MISSING
    actual = files.node_number(name) if name else None
    return FoundNode(name, number, subsystem, state, actual)


def group_of(files: Sysfs, function: str) -> str:
    """The IOMMU group of a PCI function's folder, empty without one."""
    return files.link(f"{function}/iommu_group").rpartition("/")[2]


def group_name(files: Sysfs, group: str) -> str:
    """What the kernel calls a group; `vfio-noiommu` is none that isolates."""
    return files.text(f"{_GROUPS}/{group}/name")


def group_nodes(files: Sysfs, group: str) -> list[FoundNode]:
    """The nodes of a group: its own, and that of VFIO."""
    folders = {f"/sys/class/vfio/{group}": "vfio", "/sys/class/misc/vfio": "misc"}
    found = []
    for path, subsystem in folders.items():
        folder = files.resolve(path)
        uevent = files.text(f"{folder}/uevent") if folder else ""
        found.append(found_node(files, *described_node(uevent), subsystem))
    return found


def group_members(files: Sysfs, group: str) -> list[GroupMember]:
    """The PCI functions of a group; by their links where the group has no folder of its own."""
    names = files.names_if_listable(f"{_GROUPS}/{group}/devices")
    there = {
        name: files.resolve(f"{DEVICES}/{name}")
        for name in sorted(names or files.names_if_listable(DEVICES))
    }
    return [
        _member(files, name, folder)
        for name, folder in there.items()
        if folder and (names or group_of(files, folder) == group)
    ]


def _member(files: Sysfs, address: str, folder: str) -> GroupMember:
    pci_class = files.text(f"{folder}/class").removeprefix("0x")
    return GroupMember(address, pci_class, driver_of(files, folder))


def driver_of(files: Sysfs, folder: str) -> str:
    """The driver that a device is bound to, empty without one."""
    return files.link(f"{folder}/driver").rpartition("/")[2]
