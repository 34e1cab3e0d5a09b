"""A node's accelerators: cards, their engines and ports, and the devices made of them.

A **card** is one FPGA device of one driver. Its management engine (**FME**) programs it; its
**ports** are what workloads open. Everything here is immutable and compares by value.
"""

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, TypeAlias

from services.names import dns_label
from services.process.problem import Problem

REPLICA: Final = re.compile(r"-r[0-9]+$")
"""The end of the id of a replica, `-r0`."""

NODE_MARK: Final = "--"
"""In the id of a device that is one node of a card: before the node's name."""

NO_AFU: Final = "afu-id-missing"
"""The code of the problem of a port that reaches no AFU."""

Value: TypeAlias = bool | int | str
"""The value of an attribute."""

Contents: TypeAlias = Mapping[str, str]
"""By port name: the AFU id or OpenCL program id that its record says, if the record counts; empty
if the record is."""


class PluginMode(StrEnum):
    """The kind of devices that a node offers; a node has one mode."""

    AF = "af"
    """A device is a port, its resource says which function is in it."""
    REGION = "region"
    """A device is a region; the suite programs it before a container starts."""
    REGIONDEVEL = "regiondevel"
    """A device is a region together with its engine; the workload programs it."""
    UNITS = "units"
    """A fixed number of identical units without device nodes."""
    BDF = "bdf"
    """A device is a port, named by its PCI function."""
    NONE = "none"
    """FPGAs are not served."""

    @property
    def has_cards(self) -> bool:
        """Whether devices are made of cards."""
        return self not in (PluginMode.UNITS, PluginMode.NONE)

    @property
    def names_functions(self) -> bool:
        """Whether a resource says which function is in its devices."""
        return self is PluginMode.AF

    @property
    def has_regions(self) -> bool:
        """Whether a device is a region: its function may change while it is offered."""
        return self in (PluginMode.REGION, PluginMode.REGIONDEVEL)

    @property
    def programs(self) -> bool:
        """Whether a container's function is programmed before it starts."""
        return self is PluginMode.REGION

    @property
    def hands_out_engines(self) -> bool:
        """Whether a container gets the power to program."""
        return self is PluginMode.REGIONDEVEL

    @property
    def is_numbered(self) -> bool:
        """Whether devices are units that all have one resource."""
        return self in (PluginMode.UNITS, PluginMode.BDF)


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A PCI function, as far as it decides about devices; `fpga info` shows the rest."""

    address: str
    """Domain, bus, device and function: `0000:5e:00.0`."""
    numa_node: int | None = None
    """NUMA node, None where the kernel says -1 or nothing."""
    physfn: str | None = None
    """Address of the physical function, on a virtual one."""
    vendor: str = ""
    """Vendor id, four lower-case hex digits; empty if unreadable."""
    device: str = ""
    """Device id, as the vendor id."""
    root: str = ""
    """The PCIe root that it is below, `pci0000:3a`; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a card: the part that a workload opens."""

    name: str
    """Of its folder in sysfs and of its device node, unique on a node: `dfl-port.0`."""
    number: int | None
    """Its number within the card, which programming needs; None if unreadable."""
    afu_id: str
    """The function in it, 32 lower-case hex digits, empty if unusable."""
    problems: tuple[Problem, ...] = ()
    pci: PciFunction | None = None
    """The PCI function it is on; None on a card without PCI."""
    errors: int | None = None
    """Its error register as read, None where there is none or it is unreadable."""

    @property
    def has_no_afu(self) -> bool:
        """Whether it reaches no AFU: it has no file for the id of one."""
        return any(each.code == NO_AFU for each in self.problems)


@dataclass(frozen=True, slots=True)
class VirtualFunction:
    """A virtual function of an OFS card: a container reaches the AFU behind it through VFIO."""

    pci: PciFunction
    bar: str
    """Path of the file of its BAR0, below the root."""
    inode: int | None
    """Of its folder in sysfs: another one after it was gone."""
    afu_id: str = ""
    """The AFU, 32 lower-case hex digits, empty if unknown; `services.devices.hardware.afu_ids`."""
    nodes: tuple["DeviceNode", ...] = ()
    problems: tuple[Problem, ...] = ()
    """Why a container can't have it, or why its AFU is unknown."""

    @property
    def id(self) -> str:
        """Its id as a device, like those of device types: `0000-b1-00-5`."""
        return dns_label(self.pci.address)


@dataclass(frozen=True, slots=True)
class Fme:
    """The management engine of a card."""

    name: str
    """Of its folder in sysfs and of its device node, unique on a node: `dfl-fme.0`."""
    interface_id: str
    """What a bitstream must fit, 32 lower-case hex digits, empty if unusable."""
    problems: tuple[Problem, ...] = ()
    """Why it is unhealthy, and with it every port of the card."""
    errors: tuple[tuple[str, int], ...] = ()
    """Its error registers by name, where readable."""


@dataclass(frozen=True, slots=True)
class Card:
    """One FPGA device of one driver: an engine, ports, or both."""

    driver: str
    name: str
    """The class folder's name: `intel-fpga-dev.0`, `region0`."""
    pci: PciFunction | None
    fme: Fme | None
    """Its engine; None on a virtual function, and on a broken card."""
    ports: tuple[Port, ...] = ()
    """Its ports, by number."""
    problems: tuple[Problem, ...] = ()
    """Remarks that make nothing unhealthy by themselves, such as an error register that can't be
    read for want of permission.
    """
    failure: Problem | None = None
    """Why the card could not be read at all. Its ports are then unknown, and
    `services.devices.resources` keeps those known before, as unhealthy.
    """
    functions: tuple[VirtualFunction, ...] | None = None
    """On an OFS card its AFUs are behind these, and no port reaches one; None on another card."""

    @property
    def address(self) -> str:
        """PCI address, empty where there is none."""
        return self.pci.address if self.pci else ""

    @property
    def place(self) -> str:
        """Its place on the node: its PCI address, or its name where there is none."""
        return self.address or self.name

    @property
    def physical_address(self) -> str:
        """The PCI address of a virtual function's physical one; empty for another card."""
        return (self.pci.physfn or "") if self.fme is None and self.pci is not None else ""

    @property
    def lock(self) -> str:
        """The name of its lock, which it shares with its virtual functions."""
        return self.physical_address or self.place

    @property
    def work_key(self) -> str:
        """The key of the calls that work on it."""
        # Reading sensors and clearing errors have keys of their own: they must not wait for
        # programming, and a card that is only read isn't one that is worked on.
        return f"card {self.lock}"

    def record_key(self, port: Port) -> str:
        """Identify a port in the records of programming, whatever its name in this boot."""
        return f"{self.lock}-port{port.number}"

    def unoffered(self, key: str, problem: Problem) -> "Device":
        """A device of the card that can't be offered."""
        return Device(
            id=key,
            resource="",
            reasons=(problem,),
            numa_node=self.pci.numa_node if self.pci else None,
            pci_addresses=(self.address,) if self.address else (),
            card=self.name,
            place=self.place,
        )


@dataclass(frozen=True)
class Inventory:
    """The cards that one scan found, and which belong together.

    With SR-IOV, a port may be on a virtual function, which the kernel shows as a card of its own,
    without an engine. Its engine is on the physical function.
    """

    cards: tuple[Card, ...] = ()
    """Every card, in a stable order."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with the node rather than with a card; with no card at all it says why there is
    nothing.
    """

    @cached_property
    def _engines(self) -> Mapping[str, Card]:
        with_engine = [each for each in self.cards if each.fme is not None and each.address]
        return {each.address: each for each in reversed(with_engine)}  # the first one counts

    def physical(self, card: Card) -> Card:
        """The card that has the engine: the one on its physical function, or itself."""
        return self._engines.get(card.physical_address, card)

    def members(self, card: Card) -> tuple[Card, ...]:
        """A card and the virtual functions split from it."""
        split = (
            each for each in self.cards if card.address and each.physical_address == card.address
        )
        return (card, *split)

    def ports(self, card: Card) -> tuple[Port, ...]:
        """The ports of a card, with those on the virtual functions split from it."""
        return tuple(port for member in self.members(card) for port in member.ports)

    def physical_failure(self, card: Card) -> Problem | None:
        """Why the card on a virtual function's physical one can't be read, if so."""
        if not card.physical_address:
            return None
        same = (each for each in self.cards if each.address == card.physical_address)
        return next((each.failure for each in same if each.failure is not None), None)


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node that a container gets."""

    name: str
    """Its path below `/dev` on the host: `dfl-port.0`, `vfio/12`. It may be a link: `target`."""
    permissions: str = "rw"
    """What the container may do with it, of `r` and `w`; never `m`, which is mknod."""
    number: tuple[int, int] | None = None
    """Major and minor number of the device, where they are to be checked before it is given."""
    target: str = ""
    """The path below the host's `/dev` of the node itself, where links lead from the name to it."""
    inside: str = ""
    """Its path below `/dev` in the container, where that is another than on the host."""

    @property
    def container_path(self) -> str:
        """Its whole path in the container."""
        return f"/dev/{self.inside or self.name}"

    @property
    def place(self) -> str:
        """The path below the host's `/dev` of the node itself, without links."""
        return self.target or self.name

    def host_path(self, root: str) -> str:
        """Its whole path on the host, whose `dev/` is below a folder there."""
        # Without links: a runtime that is given a link by CDI takes it for no device.
        return f"{root.rstrip('/')}/dev/{self.place}"

    def host_paths(self, root: str) -> frozenset[str]:
        """The paths on the host by which containers were given it."""
        # Earlier versions answered `Allocate` with the path of a link.
        return frozenset({self.host_path(root), f"{root.rstrip('/')}/dev/{self.name}"})


@dataclass(frozen=True, slots=True)
class Device:
    """One device as the kubelet is offered it."""

    id: str
    """Unique within its resource, at most 63 characters."""
    resource: str
    """Full resource name, `fpga.intel.com/af-…`; empty for a device that has never had one and
    therefore isn't offered.
    """
    reasons: tuple[Problem, ...] = ()
    """Why it is unhealthy; empty if it is healthy."""
    nodes: tuple[DeviceNode, ...] = ()
    numa_node: int | None = None
    pci_addresses: tuple[str, ...] = ()
    """The PCI functions behind its nodes, in their order, each once."""
    card: str = ""
    """Name of the card that it is (a part of)."""
    place: str = ""
    """What distinguishes an FPGA's card on the node, also while it can't be read: `Card.place`."""
    interface_id: str = ""
    """Interface id of its region, empty if unknown."""
    afu_ids: tuple[str, ...] = ()
    """The function in each of its ports, in the order of their nodes; empty strings where unusable,
    and at the end one for each virtual function that can't be read.
    """
    type: str = ""
    """Name of the device type that it is of; empty for an FPGA."""
    cdi: str = ""
    """Its name for container runtimes, `intel.cdi.k8s.io/fpga=dfl-port.0`; empty if it has none."""
    envs: tuple[tuple[str, str], ...] = ()
    """Variables that a container gets; values of several devices are joined by commas."""
    fixed_envs: tuple[tuple[str, str], ...] = ()
    """Variables that a container gets once, however many devices it has."""
    claims: frozenset[str] = frozenset()
    """What no other device may have: PCI addresses, numbers of device nodes as `major:minor`, and
    what an FPGA's parts are called in other modes. Devices of one type with the same claims are
    replicas.
    """
    attributes: tuple[tuple[str, Value], ...] = ()
    """What its type says of it, and the kernel; an FPGA's are made from its card."""
    share: int | None = None
    """Its number among the shares (`sharing.replicas`) of one device; None if it is no share."""
    shares: int | None = None
    """The number of shares that claims can have of it; None if it is given away as a whole."""

    @property
    def whole_id(self) -> str:
        """The id of the device of which it is a share; its own if it isn't shared."""
        return self.id if self.share is None else self.id.removesuffix(f"-r{self.share}")

    @property
    def card_id(self) -> str:
        """The id of the device of which it is a node; its own, without a share, otherwise."""
        return self.whole_id.partition(NODE_MARK)[0]

    @property
    def replica_key(self) -> Hashable:
        """A key that all replicas of a device share, and no two devices."""
        if not (self.type and self.claims):
            return self.id
        # With the card: one node that a type finds under two names is no replica.
        return self.type, self.card, self.claims

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class Sighting:
    """One reading of a source of devices: of a card, or of a device that a type names."""

    source: Hashable
    """The key of the source: a card's place, or a type's name and a device's id."""
    devices: tuple[Device, ...] = ()
    """An FPGA without a resource may have one from before."""
    broken: Problem | None = None
    """Why the devices that the source had before are unhealthy, unless they are here."""
    unknown: Device | None = None
    """Listed if the source is broken and had no devices before."""
    numbered: bool = False
    """Whether the ids count the ports of a function, so that they could change hands."""


@dataclass(frozen=True, slots=True)
class TypesReading:
    """One reading of the devices of device types."""

    sightings: tuple[Sighting, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Problems of the types rather than of a device."""
