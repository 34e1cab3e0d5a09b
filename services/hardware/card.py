"""Reading one card: what both drivers have in common, told apart by a `Driver` value.

A card's class entry has a folder for its engine and one for each of its ports. Their names carry
the numbers that the kernel gave them (`dfl-port.3`), unique on a node and the names of their device
nodes too. Whatever a file holds, the answer is a `Card`; nothing here raises.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from services.domain.devices import Card, Fme, PciFunction, Port, Problem
from services.domain.health import Reading, judge_id, judge_node, judge_register
from services.hardware.pci import Functions, address_in
from services.hardware.sysfs import Sysfs

_DECIMAL = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Register:
    """A file that should read zero.

    Args:
        file: Path below its owner's folder.
        reason: Reason code if it doesn't.
    """

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Driver:
    """Where a driver puts what.

    Args:
        name: `opae` or `dfl`.
        folder: Its class folder, below the root.
        entry: Pattern of a card's name there.
        fme: Pattern of an engine's name, below a card.
        port: Pattern of a port's name, below a card; its first group is the number.
        id_file: Where an engine has its interface id, for messages.
        interface_id: Reads the interface id of the engine in a folder, and says what else is odd.
        registers_of: Lists the registers of the engine in a folder.
    """

    name: str
    folder: str
    entry: re.Pattern[str]
    fme: re.Pattern[str]
    port: re.Pattern[str]
    id_file: str
    interface_id: Callable[[Sysfs, str, str], tuple[Reading, tuple[Problem, ...]]]
    registers_of: Callable[[Sysfs, str], Iterator[Register]]


PORT_REGISTERS = (
    Register("errors/errors", "port-errors"),
    Register("ap1_event", "ap1-event"),
    Register("ap2_event", "ap2-event"),
)
"""Registers of a port, the same under both drivers; the first one is its errors."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a class folder that may be a card.

    Args:
        driver: The driver whose folder it is in.
        name: Its name there.
        path: Its path below the root, its folder's links followed.
        target: Where it leads, as written; empty if it is no link.
    """

    driver: Driver
    name: str
    path: str
    target: str

    @property
    def shown(self) -> str:
        """Its path as people know it."""
        return f"{self.driver.folder}/{self.name}"

    @property
    def key(self) -> str:
        """Tells it from any other, and from another card of its name."""
        return f"{self.shown} -> {self.target}"


def list_entries(files: Sysfs, driver: Driver) -> tuple[Entry, ...] | Problem | None:
    """The entries of a driver's class folder that may be cards, by number.

    Regions inside of an engine, which the folder lists too, belong to that one's card.

    Args:
        files: The root's files.
        driver: Whose folder to list.

    Returns:
        None if there is no such folder; a problem if it can't be listed.
    """
    folder = files.resolve(driver.folder)
    if folder is None:
        return None
    try:
        names = files.names(folder)
    except OSError as error:
        text = f"{driver.folder} can't be listed: {error.strerror}"
        return Problem("class-unreadable", text)
    entries = []
    for name in sorted(filter(driver.entry.fullmatch, names), key=_length_first):
        path = f"{folder}/{name}"
        target = files.link(path)
        if not any(map(driver.fme.fullmatch, target.split("/"))):
            entries.append(Entry(driver, name, path, target))
    return tuple(entries)


def read_card(files: Sysfs, functions: Functions, entry: Entry) -> Card | None:
    """What a class entry says.

    Args:
        files: The root's files.
        functions: The node's PCI functions.
        entry: The entry.

    Returns:
        None if the entry is no card: neither engine nor port, or gone meanwhile.
    """
    driver, name = entry.driver, entry.name
    folder = files.resolve(entry.path)
    if folder is None:
        return _dangling(files, functions, entry)
    try:
        names = files.names(folder)
    except FileNotFoundError:
        return _dangling(files, functions, entry)
    except OSError as error:
        text = f"{entry.shown} can't be listed: {error.strerror}"
        failure = Problem("card-unreadable", text)
        return Card(driver.name, name, functions.of(files, folder), None, failure=failure)
    engines = sorted(filter(driver.fme.fullmatch, names), key=_number)
    ports = sorted(filter(driver.port.fullmatch, names), key=_number)
    if not engines and not ports:
        return None
    pci = functions.of(files, folder)
    remarks: list[Problem] = []
    fme = _Part(files, folder, engines[0], remarks).engine(driver) if engines else None
    read = [_Part(files, folder, port, remarks).port(pci) for port in ports]
    read.sort(key=lambda port: (port.number is None, port.number))
    return Card(driver.name, name, pci, fme, tuple(read), tuple(remarks))


def _dangling(files: Sysfs, functions: Functions, entry: Entry) -> Card | None:
    """The card of an entry that leads nowhere, unless the entry itself is gone."""
    if not files.exists(entry.path):
        return None
    target = files.link(entry.path)
    address, _ = address_in(target)
    pci = functions.named(files, address) if address else None
    text = f"leads nowhere: {target}" if target else "can't be followed"
    failure = Problem("card-dangling", f"{entry.shown} {text}")
    return Card(entry.driver.name, entry.name, pci, None, failure=failure)


def _length_first(name: str) -> tuple[int, str]:
    """Sorts names that end in a number by that number."""
    return len(name), name


def part_folder(files: Sysfs, entry: str, name: str) -> str:
    """The folder of an engine or port, which may be a link within the root.

    Args:
        files: The root's files.
        entry: Folder of its card.
        name: Its folder's name there.
    """
    folder = f"{entry}/{name}"
    return (files.resolve(folder) or folder) if files.link(folder) else folder


def _number(name: str) -> int:
    return int(name.rpartition(".")[2])


class _Part:
    """An engine or a port while it is read: its problems and remarks add up.

    Args:
        files: The root's files.
        entry: Folder of its card.
        name: Its folder's name there.
        remarks: The card's list, to add to.
    """

    def __init__(self, files: Sysfs, entry: str, name: str, remarks: list[Problem]) -> None:
        self._files = files
        self._folder = part_folder(files, entry, name)
        self._name = name
        self._remarks = remarks
        self._problems: list[Problem] = []

    def engine(self, driver: Driver) -> Fme:
        reading, odd = driver.interface_id(self._files, self._folder, self._name)
        self._remarks.extend(odd)
        interface_id = self._id("interface-id", driver.id_file, reading)
        self._look_at_node()
        errors = []
        for register in driver.registers_of(self._files, self._folder):
            value = self._judge(register)
            if value is not None:
                errors.append((register.reason, value))
        return Fme(self._name, self._name, interface_id, tuple(self._problems), tuple(errors))

    def port(self, pci: PciFunction | None) -> Port:
        afu_id = self._id("afu-id", "afu_id", self._files.read(f"{self._folder}/afu_id"))
        self._look_at_node()
        errors, *_ = [self._judge(register) for register in PORT_REGISTERS]
        number = self._files.text(f"{self._folder}/id")
        return Port(
            name=self._name,
            number=int(number) if _DECIMAL.fullmatch(number) else None,
            afu_id=afu_id,
            node=self._name,
            problems=tuple(self._problems),
            pci=pci,
            errors=errors,
        )

    def _id(self, what: str, file: str, reading: Reading) -> str:
        value, problem = judge_id(what, file, self._name, reading)
        if problem:
            self._problems.append(problem)
        return value

    def _look_at_node(self) -> None:
        problem = judge_node(self._name, self._files.node(self._name))
        if problem:
            self._problems.append(problem)

    def _judge(self, register: Register) -> int | None:
        reading = self._files.read(f"{self._folder}/{register.file}")
        verdict = judge_register(register.reason, register.file, self._name, reading)
        if verdict.problem:
            self._problems.append(verdict.problem)
        if verdict.remark:
            self._remarks.append(verdict.remark)
        return verdict.value
