"""PCI functions: which one a card is on, and what sysfs says about it."""

import re

from services.domain.devices import PciFunction
from services.hardware.sysfs import Sysfs

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NUMBER = re.compile(r"[0-9]{1,6}")
DEVICES = "/sys/bus/pci/devices"
_ACCELERATOR = "0x1200"
"""Start of the class of a processing accelerator (`0x120000`)."""


def address_in(path: str) -> tuple[str, str]:
    """The innermost PCI address among the folders of a path, and the path up to it.

    Returns:
        Address and path, both empty if there is none.
    """
    while path:
        before, _, name = path.rpartition("/")
        if _ADDRESS.fullmatch(name):
            return name, path
        path = before
    return "", ""


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
    function = unplaced(files, address, folder)
    return on_node(function, files.text(f"{folder}/numa_node")) if folder else function


def unplaced(files: Sysfs, address: str, folder: str) -> PciFunction:
    """The PCI function of an address, but for its NUMA node, which an administrator may correct.

    Args:
        files: The root's files.
        address: Its address.
        folder: Its folder below the root; empty if it has none.
    """
    physfn, _ = address_in(files.link(f"{folder}/physfn")) if folder else ("", "")
    return PciFunction(address, physfn=physfn or None)


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
    return (_slot_name(files.text(f"{resolved}/uevent")), resolved) if resolved else ("", "")


def _slot_name(uevent: str) -> str:
    for line in uevent.splitlines():
        key, _, value = line.partition("=")
        if key == "PCI_SLOT_NAME" and _ADDRESS.fullmatch(value.strip()):
            return value.strip()
    return ""


def on_node(function: PciFunction, text: str) -> PciFunction:
    """A function with the NUMA node that its file tells; -1 is the kernel's word for unknown."""
    numa_node = int(text) if _NUMBER.fullmatch(text) else None
    return PciFunction(function.address, numa_node, function.physfn)


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
