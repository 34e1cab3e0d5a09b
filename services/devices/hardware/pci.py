"""PCI functions: which one a card is on, and what sysfs says about it."""

import re

from services.devices.hardware.sysfs import Sysfs
from services.devices.model import PciFunction

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INNERMOST = re.compile(rf"((?:.*/)?({_ADDRESS.pattern}))(?:/.*)?", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,6}")
DEVICES = "/sys/bus/pci/devices"
_ACCELERATOR = "0x1200"
"""Start of the class of a processing accelerator (`0x120000`)."""


def address_in(path: str) -> tuple[str, str]:
    """The innermost PCI address among the folders of a path, and the path up to it.

    Returns:
        Address and path, both empty if there is none.
    """
    found = _INNERMOST.fullmatch(path)
    return (found[2], found[1]) if found else ("", "")


def function_of(files: Sysfs, entry: str) -> PciFunction | None:
    """The PCI function that a card's class entry belongs to.

    Args:
        files: The root's files.
        entry: The entry's folder, resolved, below the root.

    Returns:
        None for a card that is on no PCI function or doesn't tell.
    """
    address, folder = function_folder(files, entry)
    return _placed(files, address, folder) if address else None


def function_named(files: Sysfs, address: str) -> PciFunction:
    """The PCI function of an address, with what the PCI bus says about it."""
    return _placed(files, address, files.resolve(f"{DEVICES}/{address}") or "")


def _placed(files: Sysfs, address: str, folder: str) -> PciFunction:
    numa_node = files.text(f"{folder}/numa_node") if folder else ""
    return PciFunction(address, node_number(numa_node), physical_of(files, folder))


def physical_of(files: Sysfs, folder: str) -> str | None:
    """The address of the physical function that a virtual one is of; None for any other.

    Args:
        files: The root's files.
        folder: The function's folder below the root; empty if it has none.
    """
    link = f"{folder}/physfn"
    if not folder or not files.exists(link):
        return None
    return address_in(files.link(link))[0] or None


def function_folder(files: Sysfs, entry: str) -> tuple[str, str]:
    """Address and folder of the PCI function that a card's class entry belongs to.

    It is the nearest folder above the entry that is named like a PCI address. An entry that
    stands elsewhere (a copy of sysfs whose links were replaced by what they led to) tells it by
    its `device` link, even if that leads nowhere, or by `PCI_SLOT_NAME` in the function's
    `uevent`.

    Args:
        files: The root's files.
        entry: The entry's folder, resolved, below the root.

    Returns:
        Both empty for a card that is on no PCI function or doesn't tell; the folder empty if
        the function has none.
    """
    address, folder = address_in(entry)
    return (address, folder) if address else _linked(files, f"{entry}/device")


def _linked(files: Sysfs, link: str) -> tuple[str, str]:
    """The PCI address that a `device` link tells, and that function's folder if there is one."""
    resolved = files.resolve(link) or ""
    address, folder = address_in(resolved)
    if address:
        return address, folder
    address, _ = address_in(files.link(link))
    if address:
        return address, files.resolve(f"{DEVICES}/{address}") or ""
    address = _slot_name(files.text(f"{resolved}/uevent")) if resolved else ""
    return (address, resolved) if address else ("", "")


def _slot_name(uevent: str) -> str:
    for line in uevent.splitlines():
        key, _, value = line.partition("=")
        if key == "PCI_SLOT_NAME" and _ADDRESS.fullmatch(value.strip()):
            return value.strip()
    return ""


def node_number(text: str) -> int | None:
    """The NUMA node that a function's file tells; -1 is the kernel's word for unknown."""
    return int(text) if _NUMBER.fullmatch(text) else None


def accelerators(files: Sysfs) -> list[str]:
    """Addresses of the processing accelerators on the PCI bus, whatever their driver."""
    try:
        names = sorted(files.names(DEVICES))
    except OSError:
        return []
    found = []
    for name in names:
        folder = files.resolve(f"{DEVICES}/{name}")
        if folder and files.text(f"{folder}/class").startswith(_ACCELERATOR):
            found.append(name)
    return found
