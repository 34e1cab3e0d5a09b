"""What cards there are and how they are, as a test knows it: the oracle of the plugin's storms.

The model changes a `Rack` and itself in step. What a node should offer is computed from the model
alone: names of resources, ids, health and topology are written down here a second time, on purpose.
"""

import base64
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB0, NLB3, CardSpec, Rack

INTERFACES: Final = (A10_INTERFACE, D5005_INTERFACE)
AFUS: Final = (NLB0, NLB3)
UNITS: Final = 40
MOST_CARDS: Final = 6

FAULTS: Final = [each for each in Fault if each is not Fault.PORT_ERRORS]
"""All but what the plugin clears: a stand-in's register keeps what is written to it."""

FOLDERS_FIRST: Final = (Fault.FME_MISSING,)
"""What is mended before the rest, which may be in it."""

Devices = dict[str, tuple[bool, int | None]]
"""Health and NUMA node of devices by id."""


@dataclass
class CardModel:
    """A card: the functions in its ports, and what is wrong with it, by port."""

    interface: str
    numa: int | None
    afus: list[str]
    ill: set[tuple[Fault, int]] = field(default_factory=set)


class Model:
    def __init__(self, rack: Rack, chance: random.Random) -> None:
        self.rack = rack
        self.cards: dict[str, CardModel] = {}
        self._chance = chance

    # Changes; each says what it has done

    def add(self) -> str:
        """A card comes, if there is a slot."""
        if len(self.cards) >= MOST_CARDS:
            return "no slot is free"
        chance = self._chance
        ports = chance.choice((1, 1, 2))
        card = CardModel(
            chance.choice(INTERFACES), chance.choice((0, 1, None)), chance.choices(AFUS, k=ports)
        )
        spec = CardSpec(
            driver=chance.choice(("opae", "dfl")),
            interface_id=card.interface,
            afu_ids=tuple(card.afus),
            ports=ports,
            numa_node=-1 if card.numa is None else card.numa,
        )
        address = self.rack.add_card(spec)
        self.cards[address] = card
        return f"{spec.driver} card {address} with {ports} ports comes"

    def remove(self, address: str) -> str:
        self.mend(address)
        del self.cards[address]
        self.rack.remove_card(address)
        return f"card {address} goes"

    def program(self, address: str) -> str:
        self.mend(address)
        port, afu = self._port(address), self._chance.choice(AFUS)
        self.cards[address].afus[port] = afu
        self.rack.set_afu(address, afu, port)
        return f"{afu[:3]} goes into port {port} of {address}"

    def ruin(self, address: str) -> str:
        port, fault = self._port(address), self._chance.choice(FAULTS)
        try:
            self.rack.break_(address, fault, port)
        except OSError:  # what it is in is broken already
            return f"{address} can't have {fault.value} as it is"
        self.cards[address].ill.add((fault, port))
        return f"{fault.value} at {address} port {port}"

    def mend(self, address: str) -> str:
        card = self.cards[address]
        for fault, port in sorted(card.ill, key=lambda each: (each[0] not in FOLDERS_FIRST, each)):
            self.rack.heal(address, fault, port)
        card.ill.clear()
        return f"{address} is mended"

    def _port(self, address: str) -> int:
        return self._chance.randrange(len(self.cards[address].afus))

    # The oracle

    def offered(self, mode: str) -> dict[str, Devices]:
        """What a node in this mode offers while all is well, by resource and id."""
        if mode == "units":
            return {"b-com.com/accelerator": {str(each): (True, None) for each in range(UNITS)}}
        offered: dict[str, Devices] = {}
        for resource, key, numa in self._devices(mode):
            offered.setdefault(resource, {})[key] = (True, numa)
        return offered

    def _devices(self, mode: str) -> Iterator[tuple[str, str, int | None]]:
        for address, card in self.cards.items():
            if mode in {"region", "regiondevel"}:
                resource = f"fpga.intel.com/region-{card.interface}"
                yield resource, str(self.rack.fme(address)), card.numa
                continue
            for number, (name, afu) in enumerate(
                zip(self.rack.ports(address), card.afus, strict=True)
            ):
                if mode == "af":
                    yield af_resource(card.interface, afu), name, card.numa
                else:
                    bdf = address.removeprefix("0000:")
                    key = f"{bdf}-{number}" if number else bdf
                    yield "b-com.com/accelerator", key, card.numa


def af_resource(interface: str, afu: str) -> str:
    """The name of a function's resource: three digits of each id, and the bytes of both."""
    both = base64.urlsafe_b64encode(bytes.fromhex(interface + afu)).decode().rstrip("=")
    return f"fpga.intel.com/af-{interface[:3]}.{afu[:3]}.{both}"
