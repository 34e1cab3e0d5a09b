"""IOMMU groups as devices: whether a container can have one through VFIO.

A group is what the IOMMU isolates, so it goes to one container as a whole.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from services.process.problem import Problem
from services.process.text import listing

NO_IOMMU: Final = "vfio-noiommu"
_HARMLESS: Final = frozenset({"", "pci-stub"})
_BRIDGES: Final = ("0604", "0609")


def is_vfio(driver: str) -> bool:
    """Whether a driver is VFIO's: `vfio-pci` or a variant such as `mlx5_vfio_pci`."""
    return "vfio" in driver


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A PCI function of a group."""

    address: str
    pci_class: str
    """Its code in hex: `120000`."""
    driver: str
    """Empty if it is bound to none."""

    @property
    def is_bridge(self) -> bool:
        """Whether it only leads to others, and belongs to nobody."""
        return self.pci_class.startswith(_BRIDGES)

    @property
    def has_vfio(self) -> bool:
        """Whether VFIO has it."""
        return is_vfio(self.driver)


@dataclass(frozen=True, slots=True)
class Group:
    """An IOMMU group."""

    number: str = ""
    """Empty for a function that is in none."""
    name: str = ""
    """The kernel's, if it has one."""
    members: tuple[GroupMember, ...] = ()


def group_problem(group: Group, matched: Collection[str]) -> Problem | None:
    """Why a group can't be given to a container; `matched` are the functions that it is for."""
    if not group.number:
        text = f"{listing(sorted(matched))} has no IOMMU group: enable the IOMMU (intel_iommu=on)"
        return Problem("vfio-no-group", text)
    if group.name == NO_IOMMU:
        text = f"group {group.number} has no IOMMU, so it isolates nothing"
        return Problem("vfio-no-group", text)
    functions = [each for each in group.members if not each.is_bridge]
    idle = [each.address for each in functions if each.address in matched and not each.has_vfio]
    if idle:
        return Problem("vfio-not-bound", f"{listing(idle)} is not bound to vfio-pci")
    # VFIO opens a group only if each function that is no bridge has a VFIO driver, pci-stub or none
    # (docs.kernel.org/driver-api/vfio.html).
    held = [
        f"{each.address} ({each.driver})"
        for each in functions
        if not each.has_vfio and each.driver not in _HARMLESS
    ]
    if held:
        text = f"group {group.number} isn't viable: {listing(held)} has another driver than VFIO's"
        return Problem("vfio-not-viable", text)
    return None


def shared_problem(group: Group, address: str) -> Problem | None:
    """Why a function can't be given to a container alone: others in its group would go with it."""
    others = [each.address for each in group.members if each.has_vfio and each.address != address]
    if not others:
        return None
    text = (
        f"a container with {address} would have {listing(others)} too: all are in group"
        f" {group.number}"
    )
    return Problem("vfio-group-shared", text)
