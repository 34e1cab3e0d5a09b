"""PCI functions: which one a card is on, and what sysfs says about it."""

import re
from collections.abc import Mapping

from services.domain.devices import PciFunction
from services.hardware.sysfs import Sysfs, reading_of

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


_Known = Mapping[str, tuple[int, PciFunction]]
"""Functions by their folder, with its inode number."""


class Functions:
    """The PCI functions of a node as one scan sees them, with what the scan before it saw.

    What a function is never changes, so it is read once for each folder: a card that is replaced
    brings a new folder, which sysfs gives a new inode number. The NUMA node may be corrected by
    an administrator and is read every time.

    Several threads of a scan may use one at once.

    Args:
        known: What the scan before it saw.
    """

    def __init__(self, known: _Known | None = None) -> None:
        self._known = known or {}
        self._seen: dict[str, tuple[int, PciFunction]] = {}

    def next(self) -> "Functions":
        """For the next scan, which forgets what this one did not see."""
        return Functions(self._seen)

    def of(self, files: Sysfs, entry: str) -> PciFunction | None:
        """The PCI function that a card's class entry belongs to.

        Args:
            files: The root's files.
            entry: The entry's folder, resolved, below the root.

        Returns:
            None for a card that is on no PCI function or doesn't tell.
        """
        address, folder = function_folder(files, entry)
        return self.at(files, address, folder) if address else None

    def named(self, files: Sysfs, address: str) -> PciFunction:
        """The PCI function of an address, with what the PCI bus says about it."""
        return self.at(files, address, files.resolve(f"{DEVICES}/{address}") or "")

    def at(self, files: Sysfs, address: str, folder: str) -> PciFunction:
        """The PCI function of an address, in a folder that is known; empty if it has none."""
        function = self.unplaced(files, address, folder)
        return on_node(function, files.text(f"{folder}/numa_node")) if folder else function

    def unplaced(self, files: Sysfs, address: str, folder: str) -> PciFunction:
        """As `at`, without its NUMA node."""
        inode = files.inode(folder) if folder else None
        if inode is None:
            return PciFunction(address)
        known = self._known.get(folder)
        if known is not None and known[0] == inode:
            function = known[1]
        else:
            function = _read(files, address, folder)
        self._seen[folder] = inode, function
        return function


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


_FILES = ("vendor", "device", "class", "local_cpulist")


def _read(files: Sysfs, address: str, folder: str) -> PciFunction:
    physfn, _ = address_in(files.link(f"{folder}/physfn"))
    contents = files.contents([f"{folder}/{name}" for name in _FILES])
    vendor, device, class_code, cpulist = (reading_of(content).text for content in contents)
    return PciFunction(address, vendor, device, class_code, None, cpulist, physfn or None)


def on_node(function: PciFunction, text: str) -> PciFunction:
    """A function with the NUMA node that its file tells; -1 is the kernel's word for unknown."""
    numa_node = int(text) if _NUMBER.fullmatch(text) else None
    if function.numa_node == numa_node:
        return function
    # As `replace` would, which takes four times as long.
    return PciFunction(
        function.address,
        function.vendor,
        function.device,
        function.class_code,
        numa_node,
        function.local_cpulist,
        function.physfn,
    )


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
