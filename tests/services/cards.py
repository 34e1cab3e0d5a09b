"""Cards as values, for the tests of the device model."""

from collections.abc import Hashable, Iterable
from dataclasses import replace

from services.containers.holders import Holder
from services.devices.model import (
    Card,
    Device,
    Fme,
    Inventory,
    PciFunction,
    PluginMode,
    Port,
    Sighting,
    TypesReading,
)
from services.devices.resources import AdvertisedResources
from services.node.ledger import Ledger, Rules, Share, World, step
from services.process.problem import Problem

INTERFACE = "ce48969398f05f33946d560708be108a"
NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
NLB3 = "f7df405cbd7acf7222f144b0b93acd18"
AF_NLB0 = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
REGION = f"fpga.intel.com/region-{INTERFACE}"
UNIT = "b-com.com/accelerator"
BAD = Problem("port-errors", "errors/errors of a port reads 0x40")


def function(
    address: str = "0000:5e:00.0", *, numa: int | None = 0, physfn: str = ""
) -> PciFunction:
    return PciFunction(address, numa, physfn or None)


def port(
    name: str = "dfl-port.0",
    afu_id: str = NLB0,
    *problems: Problem,
    number: int | None = 0,
) -> Port:
    return Port(name, number, afu_id, problems, None, 0)


def card(
    index: int = 0,
    *ports: Port,
    pci: PciFunction | None = None,
    fme: Fme | None = None,
    interface: str = INTERFACE,
) -> Card:
    """A card `regionN` with `dfl-fme.N` on a PCI function of its own, its ports on that too."""
    pci = pci or function(f"0000:{0x5E + index:02x}:00.0", numa=index % 2)
    fme = fme or Fme(f"dfl-fme.{index}", interface)
    ports = ports or (port(f"dfl-port.{index}"),)
    placed = tuple(each if each.pci else replace(each, pci=pci) for each in ports)
    return Card("dfl", f"region{index}", pci, fme, placed)


def virtual(physical: Card, number: int, *ports: Port) -> Card:
    """A virtual function split from a card, without an engine."""
    pci = function(physical.address[:-1] + str(number), physfn=physical.address)
    placed = tuple(replace(each, pci=pci) for each in ports)
    return Card("dfl", f"{physical.name}{number}", pci, None, placed)


def world(
    inventory: Inventory | None = None,
    types: Iterable[Device] = (),
    allocated: Iterable[tuple[str, str]] = (),
) -> World:
    """A reading: cards, devices of types, and what containers have (resource and id)."""
    return World(
        holders={each: (Holder("ns", "p", "c"),) for each in allocated},
        cards=inventory,
        types=TypesReading(tuple(Sighting((each.type, each.id), (each,)) for each in types)),
    )


def advertise(
    inventory: Inventory,
    mode: PluginMode,
    *,
    units: int = 40,
    previous: Iterable[Device] = (),
    types: Iterable[Device] = (),
    allocated: Iterable[tuple[str, str]] = (),
) -> AdvertisedResources:
    """The offer of a node that offered some devices before, which need no good readings."""
    known: dict[Hashable, dict[str, Device]] = {}
    for each in previous:
        known.setdefault(each.place, {})[each.id] = each
    ledger = Ledger(
        Rules(mode, units, good_scans=1, programs_virtual=frozenset({"dfl"})),
        fpgas=Share(known=known),
    )
    return step(ledger, world(inventory, types, allocated), 0).offer
