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


def read_card(files: Sysfs, functions: Functions, driver: Driver, name: str) -> Card | None:
    """What a class entry says.

    Args:
        files: The root's files.
        functions: The node's PCI functions.
        driver: The driver that the entry is of.
        name: The entry's name.

    Returns:
        None if the entry is no card: neither engine nor port, or gone meanwhile.
    """
    link = f"{driver.folder}/{name}"
    if any(map(driver.fme.fullmatch, files.link(link).split("/"))):
        return None  # a region inside of an engine, which belongs to that one's card
    entry = files.resolve(link)
    if entry is None:
        return _dangling(files, functions, driver, name)
    try:
        names = files.names(entry)
    except FileNotFoundError:
        return _dangling(files, functions, driver, name)
    except OSError as error:
        text = f"{link} can't be listed: {error.strerror}"
        failure = Problem("card-unreadable", text)
        return Card(driver.name, name, functions.of(files, entry), None, failure=failure)
    engines = sorted(filter(driver.fme.fullmatch, names), key=_number)
    ports = sorted(filter(driver.port.fullmatch, names), key=_number)
    if not engines and not ports:
        return None
    pci = functions.of(files, entry)
    remarks: list[Problem] = []
    fme = _Part(files, entry, engines[0], remarks).engine(driver) if engines else None
    read = [_Part(files, entry, port, remarks).port(pci) for port in ports]
    read.sort(key=lambda port: (port.number is None, port.number))
    return Card(driver.name, name, pci, fme, tuple(read), tuple(remarks))


def _dangling(files: Sysfs, functions: Functions, driver: Driver, name: str) -> Card | None:
    """The card of an entry that leads nowhere, unless the entry itself is gone."""
    link = f"{driver.folder}/{name}"
    if not files.exists(link):
        return None
    target = files.link(link)
    address, _ = address_in(target)
    pci = functions.named(files, address) if address else None
    text = f"{link} leads nowhere: {target}" if target else f"{link} can't be followed"
    return Card(driver.name, name, pci, None, failure=Problem("card-dangling", text))


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
        self._folder = f"{entry}/{name}"
        if files.link(self._folder):
            self._folder = files.resolve(self._folder) or self._folder
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
