"""Regions: what can be programmed, and which function is in them now.

A region is a card's engine together with its ports, those on virtual functions too. Which function
a port carries, its `afu_id` says, except for OpenCL: all programs of a board package show the same
id, so a record of what was programmed last counts (`Records`), for as long as this boot, and as the
id that was shown then.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from services.devices.model import Fme, Inventory, Port, Problem
from services.names import OPENCL_AFU

Records: TypeAlias = Mapping[str, str]
"""The OpenCL program that was programmed into a port and verified since the boot, by its name; only
of ports that show what they did then. Empty where programming came to nothing since: what such a
port shows is not known to be in it."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a card.

    Args:
        name: Its engine's name, which is its device id: `dfl-fme.0`.
        driver: `opae` or `dfl`.
        card: Name of the card.
        address: The card's PCI address, empty where there is none.
        engine: What programs it.
        ports: Its ports, by number.
        unread: Why virtual functions of its card can't be read, and with them some of its ports.
    """

    name: str
    driver: str
    card: str
    address: str
    engine: Fme
    ports: tuple[Port, ...]
    unread: tuple[Problem, ...] = ()

    @property
    def interface_id(self) -> str:
        """What a bitstream for it must fit; empty if that can't be read."""
        return self.engine.interface_id

    def carrier(self, function: str, records: Records) -> Port | None:
        """The port that carries a function, None if none does."""
        for port in self.ports:
            if function and carried(port, records) == function:
                return port
        return None

    def foreign(self, functions: Collection[str], records: Records) -> tuple[Port, ...]:
        """The ports that carry none of some functions, or nothing that is known."""
        return tuple(
            port
            for port in self.ports
            if not (found := carried(port, records)) or found not in functions
        )

    @property
    def programmable(self) -> Port | None:
        """The port that a function is programmed into: the first that has a number."""
        return next((port for port in self.ports if port.number is not None), None)


def carried(port: Port, records: Records) -> str:
    """The function in a port: its AFU id, or the id of an OpenCL program; empty if unknown.

    The id that all OpenCL programs show is no function, since any of them may be there; nor is
    another one that a program showed, or that is still shown after hardware refused another.
    """
    return records.get(port.name, "" if port.afu_id == OPENCL_AFU else port.afu_id)


def regions_of(inventory: Inventory) -> dict[str, Region]:
    """The regions that a scan found, by name."""
    virtual: dict[str, list[Port]] = {}
    unread: dict[str, list[Problem]] = {}
    for card in inventory.cards:
        if card.fme is None and card.pci is not None and card.pci.physfn:
            virtual.setdefault(card.pci.physfn, []).extend(card.ports)
            unread.setdefault(card.pci.physfn, []).extend([card.failure] if card.failure else [])
    return {
        card.fme.name: Region(
            name=card.fme.name,
            driver=card.driver,
            card=card.name,
            address=card.address,
            engine=card.fme,
            ports=(*card.ports, *virtual.get(card.address, ())),
            unread=tuple(unread.get(card.address, ())),
        )
        for card in inventory.cards
        if card.fme is not None and card.failure is None
    }
