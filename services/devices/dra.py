"""The devices of a node as DRA knows them: names that are DNS labels, and attributes.

An FPGA is a region with all its ports, whatever is in it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from services.devices.held import Allocated, held_parts, is_other_node, possible_ids
from services.devices.model import Card, Contents, Device, Inventory, Value
from services.devices.resources import AdvertisedResources
from services.names import dns_label, dra_name

API_VERSION: Final = "resource.k8s.io/v1"
"""Of claims, slices and classes."""

DRIVER: Final = "accelbind.dev"
"""Name of the driver, and domain of its attributes."""

FPGA: Final = "fpga"
"""The attribute `type` of an FPGA; other devices have the name of their device type."""

CONTENT: Final = ("afuID", "program")
"""The attributes that say what is in a region."""

CARD: Final = "card"
"""The attribute that names the physical device: all its shares and nodes have it, no others."""

SHARES: Final = "shares"
"""The capacity of a device of which several claims may have shares."""

PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"

MAX_BYTES: Final = 64
"""Of a string."""
PROGRAM_DIGITS: Final = 40
"""Of the id of an OpenCL program; an AFU id has fewer."""
_INT64: Final = range(-(2**63), 2**63)

Attributes: TypeAlias = Mapping[str, Value]
"""By name; those with a domain are standard ones."""


@dataclass(frozen=True, slots=True)
class DraDevice:
    """A device that the node offers, by the name that it has in its slice."""

    name: str
    device: Device
    attributes: Attributes


def dra_devices(
    advertised: AdvertisedResources,
    inventory: Inventory,
    programmed: Contents,
    *,
    programmable: bool = True,
) -> tuple[DraDevice, ...]:
    """The devices of a node, by name; the FPGAs are offered as in mode `region`.

    `programmable` says whether this node programs regions.
    """
    cards = {card.name: card for card in inventory.cards}
    by_name: dict[str, DraDevice] = {}
    for device in advertised.devices():
        if device.type:
            attributes = _of_type(device)
        else:
            attributes = _of_fpga(device, cards.get(device.card), programmed)
            attributes["programmable"] = programmable
        name, fitting = name_of(device), {key: _fitting(attributes[key]) for key in attributes}
        # A pool in which a name is twice is not used at all. `merge` has said so of the second one.
        by_name.setdefault(name, DraDevice(name, device, fitting))
    return tuple(by_name[name] for name in sorted(by_name))


def name_of(device: Device) -> str:
    """The name of a device in DRA."""
    return dra_name(device.type, device.id) if device.type else fpga_name(device.place)


def fpga_name(place: str) -> str:
    """The name of an FPGA on the card with this PCI address."""
    return dns_label(f"{FPGA}-{place}")


def _of_fpga(device: Device, card: Card | None, programmed: Contents) -> dict[str, Value]:
    pci = card.pci if card else None
    functions = [programmed.get(node.name) for node in device.nodes]
    program = _common([each or "" for each in functions])
    # Ours are always set, here and below those of all types: a selector that names an attribute
    # which a device lacks is an error, and one error keeps a pod from being scheduled on any node
    # (kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation). So selectors
    # name the type first.
    return {
        "type": FPGA,
        "interfaceID": device.interface_id,
        "afuID": "" if "" in functions else _common(device.afu_ids),
        "program": program if len(program) == PROGRAM_DIGITS else "",
        CARD: device.place,
        "vendorID": pci.vendor if pci else "",
        "deviceID": pci.device if pci else "",
        "kernelDriver": card.driver if card else "",
        **_standard(device, pci.root if pci else ""),
    }


def _common(ids: Iterable[str]) -> str:
    """The value that all ports have; empty if they differ."""
    different = set(ids)
    return different.pop() if len(different) == 1 else ""


def _of_type(device: Device) -> dict[str, Value]:
    own = dict(device.attributes)
    root = str(own.pop("pcieRoot", ""))
    return {
        "vendorID": "",
        "deviceID": "",
        "kernelDriver": "",
        **own,
        "type": device.type,
        # Unlike a kernel name it is one device's only, whatever its class, and stays when the
        # device is plugged in again.
        CARD: next(iter(device.pci_addresses), device.card_id),
        **_standard(device, root),
    }


def _standard(device: Device, root: str) -> dict[str, Value]:
    # Other drivers' selectors ask for these, so they are there only where they are true.
    standard: dict[str, Value] = {}
    if len(device.pci_addresses) == 1:
        standard[PCI_BUS_ID] = device.pci_addresses[0]
    if root:
        standard[PCIE_ROOT] = root
    if device.numa_node is not None:
        standard[NUMA_NODE] = device.numa_node
    return standard


def _fitting(value: Value) -> Value:
    # The API server would refuse the whole slice for one value.
    if isinstance(value, str):
        return value.encode()[:MAX_BYTES].decode(errors="ignore")
    return value if isinstance(value, bool) or value in _INT64 else 0


def carried(device: DraDevice, before: Attributes, programmed: Contents) -> DraDevice:
    """A device that a claim has, as it was before its containers could change it.

    `before` are the attributes that it had when the claim got it, as far as they are known.
    """
    # Its type may have changed: a selector fails on what is missing or of another kind,
    # and slices may have only so many. No container changes where a device is: all its shares name
    # it alike.
    attributes = {
        name: before[name] if type(before.get(name)) is type(value) and name != CARD else value
        for name, value in device.attributes.items()
    }
    # Containers can't change what was programmed: its record counts only while the port shows it.
    ports = {node.name for node in device.device.nodes}
    if ports and ports <= programmed.keys():
        attributes |= {name: device.attributes[name] for name in CONTENT}
    return DraDevice(device.name, device.device, attributes)


def held_by_plugin(devices: Iterable[DraDevice], allocated: Allocated) -> frozenset[str]:
    """The names of devices that containers still have from the device plugin, in whatever mode."""
    devices, held = [*devices], held_parts(allocated)
    here = {each.device.id for each in devices}
    return frozenset(
        each.name
        for each in devices
        for known in possible_ids(each.device) & held.keys()
        for _, key in held[known]
        # Other replicas that there are now are free.
        if key == each.device.id or not (key in here or is_other_node(key, each.device))
    )
