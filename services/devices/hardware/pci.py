"""PCI functions: which one a card is on, and what sysfs has about it."""

import re

from services.devices.hardware.sysfs import Sysfs
from services.devices.model import PciFunction

DEVICES = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INNERMOST = re.compile(rf"((?:.*/)?({_ADDRESS.pattern}))(?:/.*)?", re.DOTALL)
_SLOT_NAME = re.compile(rf"^PCI_SLOT_NAME=[ \t]*({_ADDRESS.pattern})[ \t]*$", re.MULTILINE)
_ROOT = re.compile(r"/sys/devices/(?:[^/]+/)*?(pci[0-9a-f]{4,8}:[0-9a-f]{2})/.*", re.DOTALL)
_ID = re.compile(r"0x([0-9a-f]{4})")
_NUMBER = re.compile(r"[0-9]{1,6}")
_ACCELERATOR = "0x1200"
"""Start of the class of a processing accelerator (`0x120000`)."""


def address_in(path: str) -> tuple[str, str]:
    """The innermost PCI address among the folders of a path, and the path up to it, or empty."""
    match = _INNERMOST.fullmatch(path)
    return (match[2], match[1]) if match else ("", "")


def read_function(files: Sysfs, address: str, folder: str | None = None) -> PciFunction:
    """Read a function, physical or virtual; without its folder it is looked up on the PCI bus."""
    if folder is None:
        folder = files.resolve(f"{DEVICES}/{address}")
    if not folder:
        return PciFunction(address)
    # The kernel writes -1 for an unknown node.
    numa_node = files.text(f"{folder}/numa_node")
    return PciFunction(
        address,
        int(numa_node) if _NUMBER.fullmatch(numa_node) else None,
        address_in(files.link(f"{folder}/physfn"))[0] or None,
        _id(files, f"{folder}/vendor"),
        _id(files, f"{folder}/device"),
        pcie_root(folder),
    )


def _id(files: Sysfs, path: str) -> str:
    match = _ID.fullmatch(files.text(path))
    return match[1] if match else ""


def pcie_root(folder: str) -> str:
    """The PCIe root above a resolved folder, `pci0000:3a`; empty if there is none."""
    match = _ROOT.fullmatch(folder)
    return match[1] if match else ""


def function_of(files: Sysfs, entry: str) -> PciFunction | None:
    """The PCI function that a card's resolved class entry belongs to; None if there is none."""
    address, folder = function_folder(files, entry)
    return read_function(files, address, folder) if address else None


def function_folder(files: Sysfs, entry: str) -> tuple[str, str]:
    """Address and folder of the PCI function that a card's resolved class entry belongs to.

    It is the nearest folder above the entry that is named like a PCI address. An entry that
    stands elsewhere (a copy of sysfs whose links were replaced by what they led to) names it by
    its `device` link, even if that leads nowhere, or by `PCI_SLOT_NAME` in the function's
    `uevent`. What is not to be found is empty.
    """
    address, folder = address_in(entry)
    if address:
        return address, folder
    link = f"{entry}/device"
    resolved = files.resolve(link) or ""
    address, folder = address_in(resolved)
    if address:
        return address, folder
    address, _ = address_in(files.link(link))
    if address:
        return address, files.resolve(f"{DEVICES}/{address}") or ""
    slot = _SLOT_NAME.search(files.text(f"{resolved}/uevent")) if resolved else None
    return (slot[1], resolved) if slot else ("", "")


def accelerators(files: Sysfs) -> list[str]:
    """Addresses of the processing accelerators on the PCI bus, whatever their driver."""
    addresses = []
    for name in sorted(files.names_if_listable(DEVICES)):
        folder = files.resolve(f"{DEVICES}/{name}")
        if folder and files.text(f"{folder}/class").startswith(_ACCELERATOR):
            addresses.append(name)
    return addresses
