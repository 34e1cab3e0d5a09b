"""Synthetic FPGA cards: a `sys` and a `dev` folder as either driver makes them, and their faults.

A `Rack` is a folder with any number of cards in it, which can be changed while others read it:
cards come and go, get another function, are split into virtual functions, and show any `Fault`. Run
as a program it lays out cards and ends:

    python -m simulator.cards --root DIR --opae 2 --dfl 4
"""

import argparse
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from simulator.card_faults import Fault, Ruin, link, text
from simulator.card_files import Function, SyntheticPort, files, links
from simulator.devices import DeviceTree

A10_INTERFACE = "ce48969398f05f33946d560708be108a"
"""Interface id of an Arria 10 card, as existing mappings name it."""

D5005_INTERFACE = "bfac4d851ee856fe8c95865ce1bbaa2d"
"""Interface id of a D5005 card."""

NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
"""AFU id of the native loopback that the drivers' makers ship."""

NLB3 = "f7df405cbd7acf7222f144b0b93acd18"
"""AFU id of another native loopback."""


@dataclass(frozen=True, slots=True)
class CardSpec:
    driver: str = "dfl"
    """`opae` or `dfl`."""
    interface_id: str = A10_INTERFACE
    afu_ids: tuple[str, ...] = (NLB0,)
    """The function in each port; the last one also for the ports beyond."""
    ports: int = 1
    """At least one per function."""
    numa_node: int | None = 0
    """-1 for unknown, None for no such file."""
    address: str = ""
    """PCI address; the next free one if empty."""
    faults: tuple[Fault, ...] = ()
    """What is wrong with it from the start, at its first port."""


class Rack:
    """A folder of synthetic cards: `sys` and `dev` below a root.

    Nodes are regular files, which readers accept under any root but `/`, or character devices with
    `devices`, which needs CAP_MKNOD. A port is named by its position on the card.
    """

    def __init__(self, root: Path, *, devices: bool = False) -> None:
        self.root = root
        self._devices = devices
        self.functions: dict[str, Function] = {}
        """By PCI address."""
        self._tree = DeviceTree(root)
        self._taken: dict[tuple[str, str], set[int]] = {}
        for folder in ("sys/bus/pci/devices", "sys/class", "sys/devices"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    # Cards

    @property
    def addresses(self) -> tuple[str, ...]:
        """PCI addresses of its cards, in the order they came."""
        return tuple(self.functions)

    def add_card(self, spec: CardSpec) -> str:
        """Add a card; returns its PCI address."""
        address = spec.address or self._free_address()
        function = self._function(
            address, spec.driver, spec.interface_id, spec.numa_node, engine=True
        )
        for number in range(max(spec.ports, len(spec.afu_ids))):
            afu_id = spec.afu_ids[min(number, len(spec.afu_ids) - 1)]
            serial = self._reserve_number(spec.driver, "port")
            function.ports.append(SyntheticPort(number, serial, afu_id))
        self._lay_out(function)
        for fault in spec.faults:
            self.break_(address, fault)
        return address

    def remove_card(self, address: str) -> None:
        """Remove a card that has no virtual functions."""
        function = self.functions.pop(address)
        folder = f"sys/{function.folder}"
        for path in (path for path, _ in self._contents(function)):
            if not path.startswith(folder):
                self._tree.discard(path)
        self._tree.discard(folder)
        self._release_numbers(function)

    def move_to_vf(self, address: str, port: int = 0) -> str:
        """Split a port of a card off to a virtual function; return that one's address."""
        physical = self.functions[address]
        moved = physical.ports.pop(port)
        self._tree.discard(f"sys/{physical.entry_folder}/{physical.port_name(moved)}")
        self._tree.discard(f"dev/{physical.port_name(moved)}")
        virtual = self._function(
            self._free_function(address),
            physical.driver,
            physical.interface_id,
            physical.numa_node,
            engine=False,
        )
        virtual.physfn = address
        virtual.ports.append(moved)
        self._lay_out(virtual)
        place = f"sys/{physical.folder}/virtfn{len(physical.virtual)}"
        self._tree.replace(place, link(f"../{virtual.address}"))
        physical.virtual.append(virtual.address)
        number = text(f"{len(physical.virtual)}\n")
        self._tree.replace(f"sys/{physical.folder}/sriov_numvfs", number)
        return virtual.address

    # What is in a card

    def fme(self, address: str) -> str | None:
        return self.functions[address].fme_name

    def ports(self, address: str) -> tuple[str, ...]:
        function = self.functions[address]
        return tuple(function.port_name(port) for port in function.ports)

    def set_afu(self, address: str, afu_id: str, port: int = 0) -> None:
        function = self.functions[address]
        function.ports[port].afu_id = afu_id
        folder = f"sys/{function.entry_folder}/{function.port_name(function.ports[port])}"
        self._tree.replace(f"{folder}/afu_id", text(f"{afu_id}\n"))

    # Faults

    def break_(self, address: str, fault: Fault, port: int = 0) -> None:
        self._tree.replace(fault.path.format(**self.places(address, port)), fault.ruin)

    def heal(self, address: str, fault: Fault, port: int = 0) -> None:
        """Switch a fault off: what stood there before is there again."""
        place = fault.path.format(**self.places(address, port))
        for path, make in self._contents(self.functions[address]):
            if f"{path}/".startswith(f"{place}/"):
                self._tree.replace(path, make)

    def places(self, address: str, port: int = 0) -> dict[str, str]:
        """The values of the names in the place of a `Fault`, at a port of a card."""
        return self.functions[address].places(port)

    # Laying out

    def _function(
        self, address: str, driver: str, interface_id: str, numa_node: int | None, *, engine: bool
    ) -> Function:
        function = Function(
            address=address,
            driver=driver,
            entry=self._reserve_number(driver, "entry"),
            interface_id=interface_id,
            numa_node=numa_node,
            fme=self._reserve_number(driver, "fme") if engine else None,
            inner=self._reserve_number(driver, "entry") if engine and driver == "dfl" else None,
        )
        self.functions[address] = function
        return function

    def _reserve_number(self, driver: str, kind: str) -> int:
        """The lowest free number, as the kernel gives them."""
        taken = self._taken.setdefault((driver, kind), set())
        number = next(each for each in range(len(taken) + 1) if each not in taken)
        taken.add(number)
        return number

    def _release_numbers(self, function: Function) -> None:
        entries, engines, ports = (
            self._taken[function.driver, kind] for kind in ("entry", "fme", "port")
        )
        entries -= {function.entry, function.inner}
        engines -= {function.fme}
        ports -= {port.serial for port in function.ports}

    def _free_address(self) -> str:
        every = (f"{index // 240:04x}:{index % 240 + 5:02x}:00.0" for index in count())
        return next(each for each in every if each not in self.functions)

    def _free_function(self, address: str) -> str:
        device, _, number = address.rpartition(".")
        behind = (f"{device}.{each}" for each in range(int(number) + 1, 8))
        return next(each for each in behind if each not in self.functions)

    def _lay_out(self, function: Function) -> None:
        for path, make in self._contents(function):
            self._tree.replace(path, make)

    def _contents(self, function: Function) -> Iterator[tuple[str, Ruin]]:
        """Everything of a function below the root, the class entry last: it is found by that."""
        for path, content in files(function):
            yield f"sys/{path}", text(content)
        names = [function.fme_name] if function.fme_name else []
        for name in (*names, *map(function.port_name, function.ports)):
            yield f"dev/{name}", self._make_node
        for path, target in links(function):
            yield f"sys/{path}", link(target)

    def _make_node(self, path: Path) -> None:
        if self._devices:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        else:
            path.touch()


def lay_out(root: Path, cards: Sequence[CardSpec]) -> Rack:
    rack = Rack(root)
    for spec in cards:
        rack.add_card(spec)
    return rack


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m simulator.cards", description="Lay out synthetic FPGA cards."
    )
    parser.add_argument("--root", type=Path, required=True, help="folder for sys and dev")
    parser.add_argument("--opae", type=int, default=0, help="cards under the out-of-tree driver")
    parser.add_argument("--dfl", type=int, default=0, help="cards under the in-tree driver")
    asked = parser.parse_args(arguments)
    rack = lay_out(asked.root, [CardSpec("opae")] * asked.opae + [CardSpec("dfl")] * asked.dfl)
    for address in rack.addresses:
        print(address, *rack.ports(address))  # noqa: T201 - what the program is asked for


if __name__ == "__main__":
    main()
