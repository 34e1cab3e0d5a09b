"""Synthetic FPGA cards: a `sys` and a `dev` folder as either driver makes them, and their faults.

A `Rack` is a folder with any number of cards in it, which can be changed while others read it:
cards come and go, get another function, are split into virtual functions, and show any `Fault`. Run
as a program it lays out cards and ends:

    python -m simulator.cards --root DIR --opae 2 --dfl 4
"""

import argparse
import itertools
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.card_faults import Fault
from simulator.card_files import (
    Function,
    SyntheticPort,
    entry_files,
    function_files,
    links,
)

A10_INTERFACE = "ce48969398f05f33946d560708be108a"
"""Interface id of an Arria 10 card, as existing mappings name it."""

D5005_INTERFACE = "bfac4d851ee856fe8c95865ce1bbaa2d"
"""Interface id of a D5005 card."""

NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
"""AFU id of the native loopback that the drivers' makers ship."""

NLB3 = "f7df405cbd7acf7222f144b0b93acd18"
"""AFU id of another native loopback."""

_STAGING = ".staging"


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
        self._steps = itertools.count()
        self._taken: dict[tuple[str, str], set[int]] = {}
        for folder in ("sys/bus/pci/devices", "sys/class", "sys/devices", "dev", _STAGING):
            (root / folder).mkdir(parents=True, exist_ok=True)

    # Cards

    @property
    def addresses(self) -> tuple[str, ...]:
        """PCI addresses of its cards, in the order they came."""
        return tuple(self.functions)

    def add_card(self, spec: CardSpec) -> str:
        """Add a card; returns its PCI address."""
        address = spec.address or self._free_address()
        if address in self.functions:
            raise ValueError(f"{address} is taken")
        function = self._function(
            address, spec.driver, spec.interface_id, spec.numa_node, engine=True
        )
        count = max(spec.ports, len(spec.afu_ids))
        for number in range(count):
            afu_id = spec.afu_ids[min(number, len(spec.afu_ids) - 1)]
            self._add_port(function, number, afu_id)
        self._lay_out(function)
        for fault in spec.faults:
            self.break_(address, fault)
        return address

    def remove_card(self, address: str) -> None:
        """Remove a card, with its virtual functions."""
        for virtual in list(self.functions[address].virtual):
            self.remove_card(virtual)
        function = self.functions.pop(address)
        for link, _ in links(function):
            if not link.startswith(function.folder):
                self._discard(self.root / "sys" / link)
        for name in self._node_names(function):
            self._discard(self.root / "dev" / name)
        self._discard(self.root / "sys" / function.folder)
        self._release_numbers(function)
        if function.physfn is not None:
            physical = self.functions[function.physfn]
            self._discard(self._virtual_link(address, physical))
            physical.virtual.remove(address)
            self._count_virtual(physical)

    def move_to_vf(self, address: str, port: int = 0) -> str:
        """Split a port of a card off to a virtual function; return that one's address."""
        physical = self.functions[address]
        moved = physical.ports.pop(port)
        self._discard(self._entry(physical) / physical.port_name(moved))
        self._discard(self.root / "dev" / physical.port_name(moved))
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
        self._virtual_link(virtual.address, physical).symlink_to(f"../{virtual.address}")
        physical.virtual.append(virtual.address)
        self._count_virtual(physical)
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
        self._write(self._port(function, port) / "afu_id", f"{afu_id}\n")

    # Faults

    def break_(self, address: str, fault: Fault, port: int = 0) -> None:
        self._swap(self.root / fault.path.format(**self.places(address, port)), fault.ruin)

    def heal(self, address: str, fault: Fault, port: int = 0) -> None:
        """Switch a fault off: what stood there before is there again."""
        path = fault.path.format(**self.places(address, port))
        self._swap(self.root / path, lambda staged: self._restore(address, path, staged))

    def places(self, address: str, port: int = 0) -> dict[str, str]:
        """The values of the names in the place of a `Fault`, at a port of a card."""
        return self.functions[address].places(port)

    def _restore(self, address: str, path: str, staged: Path) -> None:
        function = self.functions[address]
        target = {f"sys/{link}": target for link, target in links(function)}.get(path)
        if path.startswith("dev/"):
            self._make_node(staged)
        elif target is not None:
            staged.symlink_to(target)
        else:
            built = self._build(function)
            (built / path.removeprefix(f"sys/{function.folder}/")).rename(staged)
            shutil.rmtree(built)

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

    def _add_port(self, function: Function, number: int, afu_id: str) -> None:
        serial = self._reserve_number(function.driver, "port")
        function.ports.append(SyntheticPort(number, serial, afu_id))

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
        for index in range(1 << 20):
            address = f"{index // 240:04x}:{index % 240 + 5:02x}:00.0"
            if address not in self.functions:
                return address
        raise ValueError("the rack is full")

    def _free_function(self, address: str) -> str:
        device, _, number = address.rpartition(".")
        behind = (f"{device}.{each}" for each in range(int(number) + 1, 8))
        return next(each for each in behind if each not in self.functions)

    def _virtual_link(self, address: str, physical: Function) -> Path:
        """The link from a physical function to one of its virtual ones."""
        index = int(address[-1]) - int(physical.address[-1]) - 1
        return self.root / "sys" / physical.folder / f"virtfn{index}"

    def _lay_out(self, function: Function) -> None:
        """Make a function beside the tree, move it in, then list it."""
        sys = self.root / "sys"
        built, home = self._build(function), sys / function.folder
        for name in self._node_names(function):
            self._swap(self.root / "dev" / name, self._make_node)
        home.parent.mkdir(parents=True, exist_ok=True)
        built.rename(home)
        for link, target in links(function):
            if not link.startswith(f"{function.folder}/"):
                (sys / link).parent.mkdir(exist_ok=True)
                (sys / link).symlink_to(target)

    def _build(self, function: Function) -> Path:
        staged = self._staged()
        _fill(staged, function_files(function))
        _fill(staged / function.names.class_folder / function.entry_name, entry_files(function))
        for link, target in links(function):
            if link.startswith(f"{function.folder}/"):
                (staged / link.removeprefix(f"{function.folder}/")).symlink_to(target)
        return staged

    def _node_names(self, function: Function) -> Iterator[str]:
        if function.fme_name is not None:
            yield function.fme_name
        yield from map(function.port_name, function.ports)

    def _make_node(self, path: Path) -> None:
        if self._devices:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        else:
            path.touch()

    # Files

    def _entry(self, function: Function) -> Path:
        return self.root / "sys" / function.entry_folder

    def _port(self, function: Function, port: int) -> Path:
        return self._entry(function) / function.port_name(function.ports[port])

    def _count_virtual(self, function: Function) -> None:
        name = "sriov_numvfs"
        content = dict(function_files(function))[name]
        self._write(self.root / "sys" / function.folder / name, content)

    def _staged(self) -> Path:
        return self.root / _STAGING / f"{os.getpid()}-{next(self._steps)}"

    def _write(self, path: Path, content: str) -> None:
        self._swap(path, lambda staged: _write_text(staged, content))

    def _swap(self, path: Path, make: Callable[[Path], None]) -> None:
        """Replace a path by what `make` makes, in one step if that is a file or a link."""
        staged = self._staged()  # and renamed into the tree: in sysfs nobody reads half a file
        make(staged)
        made = os.path.lexists(staged)
        if not made or staged.is_dir() or (path.is_dir() and not path.is_symlink()):
            self._discard(path)
        if made:
            staged.rename(path)

    def _discard(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            gone = self._staged()
            path.rename(gone)
            shutil.rmtree(gone)
        else:
            path.unlink(missing_ok=True)


def lay_out(root: Path, cards: Sequence[CardSpec], *, devices: bool = False) -> Rack:
    rack = Rack(root, devices=devices)
    for spec in cards:
        rack.add_card(spec)
    return rack


def _write_text(path: Path, content: str) -> None:
    path.write_text(content, encoding="ascii")


def _fill(folder: Path, files: Iterator[tuple[str, str]]) -> None:
    """Write files below a folder that does not exist yet."""
    made: set[str] = set()
    for name, content in files:
        before = name.rpartition("/")[0]
        if before not in made:
            (folder / before).mkdir(parents=True, exist_ok=True)
            made.add(before)
        _write_text(folder / name, content)


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
