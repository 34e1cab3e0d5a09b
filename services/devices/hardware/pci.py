"""PCI functions: which one a card is on, and what sysfs has about it."""

import re

from services.devices.hardware.sysfs import Sysfs
from services.devices.model import PciFunction

DEVICES = "/sys/bus/pci/devices"
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
