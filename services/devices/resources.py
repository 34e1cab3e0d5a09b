"""From cards to the devices that the kubelet is offered, in each mode.

Ports on virtual functions belong to the engine of their physical function. Problems of an engine
are problems of each of its ports, in every mode; problems of a port are problems of its region.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from services.devices.cdi import KIND
from services.devices.health import Ignored, ignored_problems, no_fme
from services.devices.model import (
    Card,
    Device,
    DeviceNode,
    Fme,
    Inventory,
    PciFunction,
    PluginMode,
    Port,
    Sighting,
)
from services.devices.ofs import ofs_devices
from services.names import (
    DOMAIN,
    UNIT_RESOURCE,
    UNIT_VARIABLES,
    function_name,
    region_name,
    resource_variable,
)
from services.process.problem import Problem

DEFAULT_UNITS = 40


@dataclass(frozen=True, slots=True)
class AdvertisedResources:
    """The resources that a node offers."""

    resources: Mapping[str, Mapping[str, Device]]
    """Devices by id, by full resource name; no resource is empty."""
    not_offered: tuple[Device, ...]
    """What was found and can't be offered, each with its reasons and no resource."""

    def devices(self) -> Iterator[Device]:
        """Every device offered, resource by resource."""
        for devices in self.resources.values():
            yield from devices.values()


NOTHING_ADVERTISED = AdvertisedResources({}, ())
"""What a node offers before its first scan."""


def with_problems(
    inventory: Inventory, problems: Mapping[str, Problem], ignored: Ignored
) -> Inventory:
    """The result of a scan, with problems known from elsewhere, and with ignored errors as remarks.

    The problems are by the name of a port.
    """
    cards = tuple(_with_problems(card, problems, ignored) for card in inventory.cards)
    return replace(inventory, cards=cards)


def _with_problems(card: Card, problems: Mapping[str, Problem], ignored: Ignored) -> Card:
    fme, remarks = card.fme, list(card.problems)
    if fme is not None:
        fme = replace(fme, problems=_counted(fme, None, ignored, remarks))
    ports = []
    for port in card.ports:
        counted = _counted(port, problems.get(port.name), ignored, remarks)
        ports.append(replace(port, problems=counted))
    return replace(card, fme=fme, ports=tuple(ports), problems=tuple(remarks))


def _counted(
    part: Fme | Port, added: Problem | None, ignored: Ignored, remarks: list[Problem]
) -> tuple[Problem, ...]:
    """The problems of a part that count; those that are ignored become remarks."""
    harmless = ignored_problems(part, ignored) if ignored else ()
    remarks.extend(Problem(each.code, f"{each.text}; ignored") for each in harmless)
    counted = tuple(each for each in part.problems if each not in harmless)
    return (*counted, added) if added else counted


def fpga_sightings(inventory: Inventory, mode: PluginMode, *, units: int) -> list[Sighting]:
    """The devices of a node's cards in a mode."""
    if mode is PluginMode.UNITS:
        return [Sighting(mode, tuple(Device(str(n), UNIT_RESOURCE) for n in range(units)))]
    if mode is PluginMode.NONE:
        return []
    return [_sighting(card, mode, inventory) for card in inventory.cards]


def _sighting(card: Card, mode: PluginMode, inventory: Inventory) -> Sighting:
    if card.failure is not None:
        unknown = card.unoffered(card.name, card.failure)
        return Sighting(card.place, broken=card.failure, unknown=unknown)
    devices = (replace(device, place=card.place) for device in _devices_of(card, mode, inventory))
    broken = no_fme(card.name, None) if card.fme is None and mode.has_regions else None
    return Sighting(card.place, tuple(devices), broken, numbered=mode is PluginMode.BDF)


def _devices_of(card: Card, mode: PluginMode, inventory: Inventory) -> Iterable[Device]:
    if card.functions is not None and mode is not PluginMode.BDF:
        return ofs_devices(card, card.functions, mode)
    return _without_ports(card, inventory) or _MAKERS[mode](card, inventory)


def _addresses(functions: Iterable[PciFunction | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(function.address for function in functions if function))


def _port_device(
    card: Card, port: Port, inventory: Inventory, *, key: str, resource: str
) -> Device:
    """The device that is one port."""
    physical = inventory.physical(card)
    if physical.fme is not None:
        reasons = port.problems + physical.fme.problems
    else:
        physfn = card.pci.physfn if card.pci else None
        reasons = (*port.problems, inventory.physical_failure(card) or no_fme(port.name, physfn))
    return Device(
        id=key,
        resource=resource,
        reasons=reasons,
        nodes=(DeviceNode(port.name),),
        numa_node=port.pci.numa_node if port.pci else None,
        pci_addresses=_addresses([port.pci]),
        card=physical.name,
        interface_id=physical.fme.interface_id if physical.fme else "",
        afu_ids=(port.afu_id,),
        claims=frozenset({port.name, *([physical.fme.name] if physical.fme else ())}),
    )


_NO_REGION = "interface-id-missing"
"""The reason of an engine that has no region to be programmed."""


# The devices of a card, by mode ------------------------------------------------------------------


def _functions(card: Card, inventory: Inventory) -> Iterator[Device]:
    """Mode `af`: a device a port, its resource named for the function in it."""
    fme = inventory.physical(card).fme
    for port in card.ports:
        resource = ""
        if fme is not None and fme.interface_id and port.afu_id:
            resource = f"{DOMAIN}/{function_name(fme.interface_id, port.afu_id)}"
        yield _port_device(card, port, inventory, key=port.name, resource=resource)


def _bdf_units(card: Card, inventory: Inventory) -> Iterator[Device]:
    """Mode `bdf`: a device a port, named by its PCI function; further ones of it have a number."""
    for index, port in enumerate(card.ports):
        if port.pci is None:
            text = f"{port.name} is on no PCI function that could name it"
            unnamed = replace(port, problems=(*port.problems, Problem("no-pci-address", text)))
            device = _port_device(card, unnamed, inventory, key=port.name, resource="")
        else:
            key = port.pci.address.removeprefix("0000:")
            # The port's number in the card and not its order: the kubelet knows by the id which
            # container has which port, also when an earlier port was released. On a virtual
            # function any number is the first.
            is_first_virtual = port.pci.physfn is not None and not index
            number = index if port.number is None or is_first_virtual else port.number
            if number:
                key = f"{key}-{number}"
            resource = "" if port.has_no_afu else UNIT_RESOURCE
            device = _port_device(card, port, inventory, key=key, resource=resource)
        # The interface id isn't needed, so a card may have no file for it. A file that is there and
        # holds nothing usable is still a sign of a broken card.
        reasons = tuple(each for each in device.reasons if each.code != _NO_REGION)
        yield replace(device, reasons=reasons)


def _region(card: Card, inventory: Inventory, *, with_engine: bool) -> Iterator[Device]:
    """Modes `region` and `regiondevel`: a device an engine, with the nodes of its ports."""
    if card.fme is None:
        if inventory.physical(card) is card:
            for port in card.ports:
                yield _port_device(card, port, inventory, key=port.name, resource="")
        return
    fme, ports = card.fme, inventory.ports(card)
    failures = [member.failure for member in inventory.members(card) if member.failure is not None]
    port_problems = [problem for port in ports for problem in port.problems]
    nodes = [port.name for port in ports]
    functions = [port.pci for port in ports]
    if with_engine:  # the workload programs the ports through it
        nodes.append(fme.name)
        functions.append(card.pci)
    reasons = (*fme.problems, *port_problems, *failures)
    interface, is_reached = fme.interface_id, not any(port.has_no_afu for port in ports)
    yield Device(
        id=fme.name,
        resource=f"{DOMAIN}/{region_name(interface)}" if interface and is_reached else "",
        reasons=reasons,
        nodes=tuple(map(DeviceNode, nodes)),
        numa_node=card.pci.numa_node if card.pci else None,
        pci_addresses=_addresses(functions),
        card=card.name,
        interface_id=interface,
        afu_ids=(*(port.afu_id for port in ports), *("" for _ in failures)),
        claims=frozenset(port.name for port in ports),
    )


def _without_ports(card: Card, inventory: Inventory) -> list[Device]:
    """One device, not offered, for a card without ports."""
    if card.fme is None or card.ports or len(inventory.members(card)) > 1:
        return []
    problem = Problem("no-port", f"{card.fme.name} has no port: none is enabled, or all released")
    return [card.unoffered(card.fme.name, problem)]


_MAKERS: Mapping[PluginMode, Callable[[Card, Inventory], Iterator[Device]]] = {
    PluginMode.AF: _functions,
    PluginMode.REGION: partial(_region, with_engine=False),
    PluginMode.REGIONDEVEL: partial(_region, with_engine=True),
    PluginMode.BDF: _bdf_units,
}


def completed(device: Device, mode: PluginMode) -> Device:
    """An FPGA with what follows from its id and its resource, if it has one."""
    if not device.resource:
        return device
    if mode.is_numbered:
        envs = tuple((variable, device.id) for variable in UNIT_VARIABLES)
    else:
        envs = ((resource_variable(device.resource), ",".join(device.pci_addresses)),)
    # The kubelet keeps the CDI names that a container was given when the node's mode changes: that
    # of a region without its engine must never come to mean the region with its engine.
    name = f"{mode.value}-{device.id}" if mode.hands_out_engines else device.id
    functions = [each for each in (device.place, *device.pci_addresses) if each]
    ids = (each.removeprefix("0000:") for each in functions)  # those of mode bdf
    claims = device.claims.union(functions, ids)
    return replace(device, cdi=f"{KIND}={name}", envs=envs, claims=claims)
