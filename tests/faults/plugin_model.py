"""What cards there are and how they are, as a test knows it: the oracle of the plugin's fault runs.

The model changes a `Rack` and itself in step. What a node should offer is computed from the model
alone: names of resources, ids, health and topology are written down here a second time, on purpose.
"""

import base64
import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB0, NLB3, CardSpec, Rack
from tests.faults.plugin_kubelet import Devices
from tests.hanging import Hang, Held, hold

INTERFACES: Final = (A10_INTERFACE, D5005_INTERFACE)
AFUS: Final = (NLB0, NLB3)
UNITS: Final = 40
MOST_CARDS: Final = 6

SURE: Final = (
    Fault.AFU_EMPTY,
    Fault.AFU_BLANKS,
    Fault.AFU_NULS,
    Fault.AFU_ALL_F,
    Fault.AFU_SHORT,
    Fault.AFU_BINARY,
    Fault.AFU_ENDLESS,
    Fault.AFU_FOLDER,
    Fault.AFU_FIFO,
    Fault.AFU_LOOP,
    Fault.PORT_NODE_MISSING,
    Fault.PORT_NODE_FOLDER,
    Fault.PORT_NODE_DANGLING,
    Fault.AP1_EVENT,
    Fault.AP2_EVENT,
    Fault.INTERFACE_EMPTY,
    Fault.INTERFACE_BLANKS,
    Fault.INTERFACE_ALL_F,
    Fault.INTERFACE_SHORT,
    Fault.INTERFACE_BINARY,
    Fault.INTERFACE_FOLDER,
    Fault.FME_ERRORS,
    Fault.CATFATAL_ERRORS,
    Fault.NONFATAL_ERRORS,
    Fault.OVERHEATED,
)
"""Faults that make their port, or all ports of their card, unhealthy, whatever the mode."""

OF_A_PORT: Final = ("afu-", "port-", "ap1-", "ap2-")
"""How the names of faults begin that are of one port."""

FOLDERS_FIRST: Final = (Fault.FME_MISSING,)
"""What is mended before the rest, which may be in it."""

SURE_HANGS: Final = (
    Hang.CARD_LISTING,
    Hang.AFU_READ,
    Hang.PORT_ERRORS_READ,
    Hang.INTERFACE_READ,
    Hang.FME_ERRORS_READ,
)


@dataclass
class PortModel:
    """A port: the function in it, what is wrong with it, and the PCI function that it is on."""

    afu: str
    number: int
    ill: set[Fault] = field(default_factory=set)


@dataclass
class CardModel:
    """A card, or a virtual function: its ports are those that are on it now."""

    interface: str
    numa: int | None
    physical: str | None = None
    ports: list[PortModel] = field(default_factory=list)
    ill: set[Fault] = field(default_factory=set)
    hanging: dict[tuple[Hang, int], Held] = field(default_factory=dict)


class Model:
    """The cards of a node."""

    def __init__(self, rack: Rack, chance: random.Random) -> None:
        self.rack = rack
        self.cards: dict[str, CardModel] = {}
        self._chance = chance

    # Changes -------------------------------------------------------------------------------------

    def add(self) -> str:
        """A card comes."""
        chance = self._chance
        ports = chance.choice((1, 1, 2))
        card = CardModel(chance.choice(INTERFACES), chance.choice((0, 1, None)))
        card.ports = [PortModel(chance.choice(AFUS), number) for number in range(ports)]
        spec = CardSpec(
            driver=chance.choice(("opae", "dfl")),
            interface_id=card.interface,
            afu_ids=tuple(port.afu for port in card.ports),
            ports=ports,
            numa_node=-1 if card.numa is None else card.numa,
        )
        address = self.rack.add_card(spec)
        self.cards[address] = card
        return f"{spec.driver} card {address} with {ports} ports comes"

    def remove(self, address: str) -> str:
        """A card goes, with its virtual functions."""
        for member in self._members(address):
            self.mend(member)
            del self.cards[member]
        self.rack.remove_card(address)
        return f"card {address} goes"

    def split(self, address: str) -> str:
        """A port of a card goes to a virtual function."""
        self.mend(address)
        port = self._chance.randrange(len(self.cards[address].ports))
        virtual = self.rack.move_to_vf(address, port)
        card = self.cards[address]
        self.cards[virtual] = CardModel(
            card.interface, card.numa, physical=address, ports=[card.ports.pop(port)]
        )
        return f"port {port} of {address} moves to {virtual}"

    def join(self, address: str) -> str:
        """A virtual function goes, its port goes back."""
        self.mend(address)
        self.rack.move_back(address)
        virtual = self.cards.pop(address)
        self.cards[str(virtual.physical)].ports.extend(virtual.ports)
        return f"{address} is given back"

    def program(self, address: str) -> str:
        """Another function comes into a port."""
        self.mend(address)
        card = self.cards[address]
        index = self._chance.randrange(len(card.ports))
        card.ports[index].afu = self._chance.choice(AFUS)
        self.rack.set_afu(address, card.ports[index].afu, index)
        return f"{card.ports[index].afu[:3]} goes into port {index} of {address}"

    def ruin(self, address: str, fault: Fault) -> str:
        """Something breaks."""
        card = self.cards[address]
        port = self._chance.randrange(len(card.ports)) if card.ports else 0
        of_a_port = fault.value.startswith(OF_A_PORT)
        if not card.ports or (card.physical is not None and not of_a_port):
            return f"{address} has no {fault.value}"
        try:
            self.rack.break_(address, fault, port)
        except OSError:  # what it is in is broken already
            return f"{address} can't have {fault.value} as it is"
        (card.ports[port].ill if of_a_port else card.ill).add(fault)
        return f"{fault.value} at {address} port {port}"

    def hang(self, address: str, hang: Hang) -> str:
        """Who reads something of it hangs."""
        card = self.cards[address]
        if not card.ports or card.physical is not None:
            return f"{address} has nothing to hang"
        port = self._chance.randrange(len(card.ports))
        if (hang, port) in card.hanging:
            return f"{hang.value} hangs already"
        try:
            card.hanging[hang, port] = hold(self.rack, address, hang, port)
        except OSError as error:  # it is broken already: away, or a link in a loop
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                raise
            return f"{address} has no {hang.value}"
        return f"{hang.value} hangs at {address} port {port}"

    def mend(self, address: str) -> None:
        """All that is wrong with a card is put right."""
        card = self.cards[address]
        for held in card.hanging.values():
            held.release()
        card.hanging.clear()
        for fault in sorted(card.ill, key=lambda each: (each not in FOLDERS_FIRST, each)):
            self.rack.heal(address, fault)
        card.ill.clear()
        for index, each in enumerate(card.ports):
            for fault in sorted(each.ill):
                self.rack.heal(address, fault, index)
            each.ill.clear()

    def mend_all(self) -> None:
        """All is well."""
        for address in self.cards:
            self.mend(address)

    def clear_registers(self) -> None:
        """What drivers do: an error that is written back is gone, and not made by the write."""
        for address, card in self.cards.items():
            for index, port in enumerate(card.ports):
                if not port.ill and not card.hanging:
                    self.rack.heal(address, Fault.PORT_ERRORS, index)

    # Choices -------------------------------------------------------------------------------------

    def physical(self, *, with_ports: bool = False) -> list[str]:
        """Addresses of cards that are no virtual functions; all, or those that have ports left."""
        found = [address for address, card in self.cards.items() if card.physical is None]
        return [address for address in found if self.cards[address].ports or not with_ports]

    def virtual(self) -> list[str]:
        """Addresses of virtual functions."""
        return [address for address, card in self.cards.items() if card.physical is not None]

    def with_ports(self) -> list[str]:
        """Addresses of whatever has ports on itself."""
        return [address for address, card in self.cards.items() if card.ports]

    def _members(self, address: str) -> list[str]:
        return [*(key for key, card in self.cards.items() if card.physical == address), address]

    # The oracle ----------------------------------------------------------------------------------

    def offered(self, mode: str) -> dict[str, Devices]:
        """What a node in this mode should offer, health and NUMA node by resource and id."""
        if mode == "units":
            return {"b-com.com/accelerator": {str(each): (True, None) for each in range(UNITS)}}
        offered: dict[str, Devices] = {}
        for resource, key, told in self._devices(mode):
            offered.setdefault(resource, {})[key] = told
        return offered

    def _devices(self, mode: str) -> Iterator[tuple[str, str, tuple[bool, int | None]]]:
        for address, card in self.cards.items():
            engine = self.cards[card.physical] if card.physical else card
            if mode in {"region", "regiondevel"}:
                name = self.rack.fme(address)
                if name is None:
                    continue
                members = [self.cards[each] for each in self._members(address)]
                healthy = all(map(_sound, members)) and not any(
                    port.ill for member in members for port in member.ports
                )
                # The in-tree driver can't program a port on a virtual function.
                if mode == "region" and name.startswith("dfl-"):
                    healthy = healthy and not any(
                        member.physical and member.ports for member in members
                    )
                yield f"fpga.intel.com/region-{card.interface}", name, (healthy, card.numa)
                continue
            for index, port in enumerate(card.ports):
                healthy = _sound(card) and _sound(engine) and not port.ill
                name = self.rack.ports(address)[index]
                resource = af_resource(card.interface, port.afu)
                if mode == "bdf":
                    resource = "b-com.com/accelerator"
                    name = address.removeprefix("0000:")
                    if port.number and card.physical is None:
                        name = f"{name}-{port.number}"
                yield resource, name, (healthy, card.numa)


def _sound(card: CardModel) -> bool:
    return not card.ill and not card.hanging


def af_resource(interface: str, afu: str) -> str:
    """The name of a function's resource: three digits of each id, and the bytes of both."""
    both = base64.urlsafe_b64encode(bytes.fromhex(interface + afu)).decode().rstrip("=")
    return f"fpga.intel.com/af-{interface[:3]}.{afu[:3]}.{both}"
