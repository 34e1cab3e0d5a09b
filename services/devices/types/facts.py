"""Attributes that need no declaration: the kernel knows them of every device."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.devices.hardware.pci import (
    address_in,
    group_of,
    numa_node,
    pcie_root,
    read_hex,
    read_ids,
)
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Value

_INTERFACE: Final = re.compile(r"/\d+-[\d.]+:\d+\.(\d{1,3})(?=/|$)")


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that a type may match."""

    name: str
    """The kernel's: a PCI address, `3-1.2`, `ve0`, or a path below `/dev`."""
    folder: str = ""
    """Its folder in sysfs without links; empty if it has none."""
    subsystem: str = ""
    """`pci`, `usb`, or its class."""
    pci: str = ""
    """Folder of the PCI function that it is, or is part of; a USB device has none."""
    usb: str = ""
    """Folder of the USB device that it is, or is part of."""
    other: str = ""
    """Folder of the device that it is part of, if that is neither."""

    @property
    def owner(self) -> str:
        """The folder of what it is part of; what has the same one belongs together."""
        return self.usb or self.pci or self.other

    @property
    def place(self) -> str:
        """Its place, which distinguishes it from devices that it isn't part of."""
        return self.owner or self.folder or self.name

    @property
    def address(self) -> str:
        """The PCI address, empty if it isn't on PCI or if that is a USB controller's."""
        return address_in(self.pci)[0] if self.pci else ""


def read_fact(files: Sysfs, subject: Subject, name: str) -> Value | None:
    """An attribute of a device by its name; None if the device doesn't have it."""
    read = _READERS.get(name)
    value = read(files, subject) if read else None
    return None if value == "" else value


def last_step(path: str) -> str:
    """The last name of a path."""
    return path.rpartition("/")[2]


def _id(files: Sysfs, subject: Subject, usb: str, pci: str) -> str:
    if subject.usb:
        return read_hex(files, f"{subject.usb}/{usb}")
    return read_hex(files, f"{subject.pci}/{pci}") if subject.pci else ""


def _driver(files: Sysfs, subject: Subject) -> str:
    """The driver of a device, or of the device that a class entry stands for."""
    if subject.folder == subject.owner:
        return last_step(files.link(f"{subject.folder}/driver"))
    # That of an input's event is an input, which is that of the device; one on a bus of its own,
    # such as a GPIO chip, is below its device.
    places = (*("/device", "/device/device"), "/..") if subject.folder else ()
    found = (files.link(f"{subject.folder}{each}/driver") for each in places)
    return last_step(next(filter(None, found), ""))


def _numa_node(files: Sysfs, subject: Subject) -> int | None:
    function = subject.pci or address_in(subject.usb)[1]
    return numa_node(files, function) if function else None


def _usb_interface(_: Sysfs, subject: Subject) -> int | None:
    found = _INTERFACE.findall(subject.folder) if subject.usb else []
    return int(found[-1]) if found else None


def _is_virtual(files: Sysfs, subject: Subject) -> bool | None:
    return bool(files.link(f"{subject.pci}/physfn")) if subject.pci else None


_READERS: Final[dict[str, Callable[[Sysfs, Subject], Value | None]]] = {
    "class": lambda _, subject: subject.subsystem,
    "kernelName": lambda _, subject: subject.name,
    "kernelDriver": _driver,
    "vendorID": lambda files, subject: _id(files, subject, "idVendor", "vendor"),
    "deviceID": lambda files, subject: _id(files, subject, "idProduct", "device"),
    "subsystemID": lambda files, of: read_ids(files, of.pci, "subsystem_") if of.pci else "",
    "pciClass": lambda files, of: read_hex(files, f"{of.pci}/class") if of.pci else "",
    "pciBusID": lambda _, subject: subject.address,
    "pcieRoot": lambda _, subject: pcie_root(subject.pci),
    "virtualFunction": _is_virtual,
    "numaNode": _numa_node,
    "iommuGroup": lambda files, of: group_of(files, of.pci) if of.pci else "",
    "usbSerial": lambda files, of: files.text(f"{of.usb}/serial") if of.usb else "",
    "usbPath": lambda _, subject: last_step(subject.usb),
    "usbInterface": _usb_interface,
}
