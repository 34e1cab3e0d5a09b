"""PCI functions: which one a card is on, and what sysfs says about it."""

import re

from services.domain.devices import PciFunction
from services.hardware.sysfs import Sysfs

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NUMBER = re.compile(r"[0-9]{1,6}")
_DEVICES = "/sys/bus/pci/devices"
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

    It is the nearest folder above the entry that is named like a PCI address. An entry that stands
    elsewhere (a copy of sysfs whose links were replaced by what they led to) tells it by its
    `device` link, even if that leads nowhere, or by `PCI_SLOT_NAME` in the function's `uevent`.

    Args:
        files: The root's files.
        entry: The entry's folder, resolved, below the root.

    Returns:
        None for a card that is on no PCI function or doesn't tell.
    """
    address, folder = address_in(entry)
    if address:
        return _read(files, address, folder)
    link = f"{entry}/device"
    resolved = files.resolve(link) or ""
    address, folder = address_in(resolved)
    if not address:
        address, _ = address_in(files.link(link))
        folder = files.resolve(f"{_DEVICES}/{address}") or "" if address else ""
    if not address and resolved:
        address, folder = _slot_name(files.text(f"{resolved}/uevent")), resolved
    if not address:
        return None
    return _read(files, address, folder) if folder else PciFunction(address)


def _slot_name(uevent: str) -> str:
    for line in uevent.splitlines():
        key, _, value = line.partition("=")
        if key == "PCI_SLOT_NAME" and _ADDRESS.fullmatch(value.strip()):
            return value.strip()
    return ""


def _read(files: Sysfs, address: str, folder: str) -> PciFunction:
    numa_node = files.text(f"{folder}/numa_node")
    physfn, _ = address_in(files.link(f"{folder}/physfn"))
    return PciFunction(
        address=address,
        vendor=files.text(f"{folder}/vendor"),
        device=files.text(f"{folder}/device"),
        class_code=files.text(f"{folder}/class"),
        # -1 is the kernel's word for unknown
        numa_node=int(numa_node) if _NUMBER.fullmatch(numa_node) else None,
        local_cpulist=files.text(f"{folder}/local_cpulist"),
        physfn=physfn or None,
    )


def accelerators(files: Sysfs) -> list[str]:
    """Addresses of the processing accelerators on the PCI bus, whatever their driver."""
    try:
        names = sorted(files.names(_DEVICES))
    except OSError:
        return []
    found = []
    for name in names:
        folder = files.resolve(f"{_DEVICES}/{name}")
        if folder and files.text(f"{folder}/class").startswith(_ACCELERATOR):
            found.append(name)
    return found
