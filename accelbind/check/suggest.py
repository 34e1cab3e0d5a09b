"""A draft of a device type for a device of this node, as sysfs shows it."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import filter as fnfilter
from pathlib import Path
from typing import Final

import msgspec

from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Value
from services.devices.nodes import denial, denied_name
from services.devices.types.discover import SysTree
from services.devices.types.facts import Subject
from services.devices.types.model import Term, Usb
from services.devices.types.values import BUILT_IN, OF_FPGAS, Label
from services.devices.vfio import is_vfio
from services.names import DEVICE_DOMAIN, dns_label
from services.process.errors import InvalidSettings
from services.process.text import listing, plain, quote, words

_SHORT_ADDRESS: Final = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INTERFACE: Final = re.compile(r"(\d+-[\d.]+):\d+\.\d+")
_ANY_USB: Final = Term(usb=Usb(vendor=("0000",)))
_MOST: Final = 20
_MAX_ALIKE: Final = 4
_LONGEST: Final = 64
_OF_ALL: Final = words("""
    ari_enabled autosuspend avoid_reset_quirk bConfigurationValue bDeviceClass bDeviceProtocol
    bDeviceSubClass bMaxPacketSize0 bMaxPower bNumConfigurations bNumInterfaces bmAttributes
    broken_parity_status bcdDevice busnum class config configuration consistent_dma_mask_bits
    current_link_speed current_link_width d3cold_allowed descriptors dev devnum devpath device
    devspec dma_mask_bits driver_override enable idProduct idVendor irq local_cpulist local_cpus
    ltm_capable max_link_speed max_link_width maxchild modalias msi_bus numa_node power_state
    product quirks remove rescan reset reset_method resource revision rom rx_lanes serial speed
    subsystem_device subsystem_vendor tx_lanes uevent urbnum vendor version
    waiting_for_supplier
""")
"""Files that all devices of a bus have."""


@dataclass(frozen=True, slots=True)
class _SysfsDevice:
    """A device as sysfs shows it."""

    tree: SysTree
    subject: Subject
    is_entry: bool
    """Whether it is neither a PCI function nor a USB device."""
    nodes: dict[str, list[str]]
    """By class: its entries whose nodes can be handed out."""
    refused: str
    """Why others can't."""

    @property
    def classes(self) -> list[str]:
        """The classes that a type can name."""
        return [each for each, names in self.nodes.items() if names or self.is_entry]

    def fact(self, name: str) -> Value | None:
        """An attribute that all devices of its bus have."""
        return self.tree.facts(self.subject)(name)


def suggest(root: Path, device: str, allowed: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines of a draft for `/dev/NAME`, a PCI address or a USB path such as `3-1.2`.

    `allowed` are words of the plugin's setting about nodes.

    Raises:
        InvalidSettings: There is no such device below the root, or none that can be served.
    """
    shown = _read(SysTree(Sysfs(root)), device, allowed)
    name, driver = _name(shown), shown.fact("kernelDriver") or "none"
    match, alike = _match(shown)
    yield f"# A draft for {device}: kernel name {shown.subject.name}, driver {driver}."
    yield "apiVersion: accelbind.dev/v1alpha1"
    yield "kind: DeviceType"
    yield f"metadata: {{name: {name}}}"
    yield "spec:"
    yield f"  match: [{match}]"
    yield f"  resource: {{domain: {DEVICE_DOMAIN}, name: {name}}}"
    yield f"  nodes: {_nodes(shown)}"
    if len(alike) > 1:
        yield f"  each: node    # device: a pod gets {listing(alike, most=_MAX_ALIKE)} together"
    several = [name for each in shown.classes for name in shown.nodes[each]]
    if len(several) > 1 and not shown.is_entry:
        yield f"  each: device    # node: {listing(several, most=_MAX_ALIKE)} are separate devices"
    yield from _attributes(shown.tree, shown.subject)


def _read(tree: SysTree, device: str, allowed: Collection[str]) -> _SysfsDevice:
    subject = _find(tree, device, allowed)
    is_entry = subject.subsystem not in {"pci", "usb"}
    classes = [subject.subsystem] if is_entry else tree.classes_of(subject.owner)
    if is_entry:
        node = tree.own_node(subject)
        if why := denial(subject.subsystem, node.number, node.name, allowed):
            raise InvalidSettings(f"{device}: {why}")
    nodes: dict[str, list[str]] = {each: [] for each in classes}
    refused = ""
    for each in classes:
        for name, node in tree.nodes_of_class(subject, each):
            if why := denial(each, node.number, node.name, allowed):
                refused = why
            else:
                nodes[each].append(name)
    return _SysfsDevice(tree, subject, is_entry, nodes, refused)


def _find(tree: SysTree, device: str, allowed: Collection[str]) -> Subject:
    if device.startswith("/dev/"):
        if why := denied_name(device.removeprefix("/dev/"), allowed):
            raise InvalidSettings(f"{plain(device)}: {why}")
        try:
            found = tree.subjects(Term(path=(device,)))
        except ValueError as error:
            raise InvalidSettings(f"{plain(device)}: {plain(str(error), 300)}") from error
        found = (
            [each for each in found if each.folder]
            or [each for each in (tree.with_node(device.removeprefix("/dev/")),) if each]
            # Only its path names it.
            or [each for each in found if tree.files.node_number(each.name)]
        )
    else:
        device = device.lower()
        if interface := _INTERFACE.fullmatch(device):
            device = interface[1]
        address = f"0000:{device}" if _SHORT_ADDRESS.fullmatch(device) else device
        listed = [*tree.functions, *tree.subjects(_ANY_USB)]
        found = [each for each in listed if each.name == address]
    if not found:
        place = "sys/dev/char" if device.startswith("/dev/") else "sys/bus/pci or sys/bus/usb"
        raise InvalidSettings(
            f"{quote(device)} is no device in sysfs ({place} does not have it): name /dev/NAME, a"
            " PCI address such as 0000:01:00.0, or a USB path such as 3-1.2"
        )
    return found[0]


def _name(shown: _SysfsDevice) -> str:
    """A name for the type: of the class, of the device or, if it can't be either, the vendor's."""
    of_class = next(iter(shown.classes), "")
    vendor = shown.fact("vendorID")
    if not (shown.is_entry or of_class):
        return f"device-{vendor}"
    name = dns_label(shown.subject.name if of_class in ("misc", "") else of_class)
    try:
        return msgspec.convert(name, Label)
    except msgspec.ValidationError:  # it starts with a digit, as PCI addresses do
        return f"device-{vendor or name}"


def _match(shown: _SysfsDevice) -> tuple[str, list[str]]:
    """A term that matches the device, and the devices of its card that it matches too."""
    tree, subject = shown.tree, shown.subject
    if not shown.is_entry:
        return _term(shown, ""), []
    like = _like(subject.name)
    if tree.is_entry(subject):
        of_class = shown.nodes[subject.subsystem]
        alike = fnfilter(of_class, like)
        return _term(shown, like if len(alike) < len(of_class) else ""), alike
    # It is on a bus, such as Intel's DSA: only its path names it.
    node = tree.own_node(subject)
    # A pattern matches nodes that sysfs knows.
    path = f"/dev/{_like(node.name) if subject.folder else node.name}"
    found = tree.subjects(Term(path=(path,)))
    alike = [each.name for each in found if each.place == subject.place]
    return f'{{path: ["{path}"]{_identity(shown)}}}', alike


def _like(name: str) -> str:
    """A pattern of the names that differ by their numbers: `npu*pe*`."""
    return re.sub("[0-9]+", "*", name)


def _identity(shown: _SysfsDevice) -> str:
    """The condition that a path leads to a device of the same vendor and product."""
    ids = {name: shown.fact(name) for name in ("vendorID", "deviceID")}
    conditions = [
        f'{{attribute: {name}, equals: "{value}"}}' for name, value in ids.items() if value
    ]
    return f", where: [{', '.join(conditions)}]" if conditions else ""


def _term(shown: _SysfsDevice, entry: str) -> str:
    """A term by ids and class; `entry` is a pattern if not all entries of the class are meant."""
    subject, parts = shown.subject, []
    vendor, device = shown.fact("vendorID"), shown.fact("deviceID")
    if subject.usb:
        parts.append(f'usb: {{vendor: ["{vendor}"], product: ["{device}"]}}')
    elif subject.pci:
        parts.append(f'pci: {{vendor: ["{vendor}"], device: ["{device}"]}}')
    if shown.is_entry:
        # Without a bus, the class may have devices of all kinds.
        named = entry if parts else subject.name
        of = f', entry: ["{named}"]' if named else ""
        parts.append(f"class: {{name: {subject.subsystem}{of}}}")
    return f"{{{', '.join(parts)}}}"


def _nodes(shown: _SysfsDevice) -> str:
    """The sources of its nodes, or a remark why there is none but VFIO."""
    if shown.is_entry or (shown.subject.subsystem == "usb" and not shown.classes):
        return "[{own: true}]"
    if is_vfio(str(shown.fact("kernelDriver"))):
        return "[{vfio: true}]"
    if shown.classes:
        return f"[{', '.join(f'{{class: {each}}}' for each in shown.classes)}]"
    why = "no class has nodes of it: bind vfio-pci, or its driver"
    if shown.refused:
        why = f"{shown.refused}; bound to vfio-pci, it is handed out as a whole"
    elif on_bus := shown.tree.nodes_on_bus(shown.subject.owner):
        why = f"for its own nodes, ask for a draft of /dev/{on_bus[0]}"
    return f"[{{vfio: true}}]    # {why}"


def _attributes(tree: SysTree, subject: Subject) -> Iterator[str]:
    found = []
    names = set[str]()
    for name in sorted(tree.files.names_if_listable(subject.folder)) if subject.folder else ():
        if name in _OF_ALL or name.startswith("resource") or _identifier(name) in names:
            continue
        text = tree.files.read(f"{subject.folder}/{name}").text
        if text and len(text) <= _LONGEST and text.isprintable():
            found.append((name, text))
            names.add(_identifier(name))
    if found:
        yield "  attributes:    # what sysfs shows; keep those that match, health or env need"
    for name, text in found[:_MOST]:
        kind = ", type: int" if re.fullmatch(r"-?[0-9]{1,18}", text) else ""
        yield f"    - {{name: {_identifier(name)}, file: {name}{kind}}}    # {text}"


def _identifier(file: str) -> str:
    first, *rest = [each for each in re.split(r"[^A-Za-z0-9]+", file) if each]
    made = (first + "".join(each[:1].upper() + each[1:] for each in rest))[:32]
    if made[0].isdigit() or made in BUILT_IN or made in OF_FPGAS:
        made = f"of{made[:1].upper()}{made[1:30]}"
    return made
