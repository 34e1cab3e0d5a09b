"""Finding the cards of a node below an injected root, whichever driver they have, and reading each.

A read below `/sys` runs code of the card's driver and may hang, so each card is read by a call of
its own that can be abandoned (`services.process.blocking`). Everything is read each time, because
sysfs shows no change in a file's time or size. Whatever a file holds, the answer is a `Card`.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from services.devices.hardware.drivers import DFL, OPAE, Driver, Register
from services.devices.hardware.ofs import read_functions
from services.devices.hardware.pci import DEVICES, address_in, read_function
from services.devices.hardware.sysfs import Sysfs
from services.devices.health import (
    Failure,
    Reading,
    evaluate_id,
    evaluate_register,
    port_without_driver,
)
from services.devices.model import Card, Fme, Inventory, PciFunction, Port
from services.process.blocking import BlockingCalls, Call
from services.process.errors import DeviceHung, HardwareError
from services.process.problem import Problem

_DECIMAL = re.compile(r"[0-9]{1,9}")
_NO_FILE = Reading(failure=Failure.MISSING)


class CardEntry(NamedTuple):
    """An entry of a class folder that may be a card."""

    driver: Driver
    name: str
    path: str
    """Its path below the root; the links of its folder have been followed."""
    target: str
    """Where it leads, as written; empty if it is no link."""

    @property
    def shown(self) -> str:
        """Its path as people know it."""
        return f"{self.driver.folder}/{self.name}"

    @property
    def key(self) -> str:
        """Distinguish it from all others, and from another card of the same name."""
        return f"{self.shown} -> {self.target}"


def list_entries(files: Sysfs, driver: Driver) -> list[CardEntry] | Problem | None:
    """The entries of a driver's class folder that may be cards, by number; None without it."""
    folder = files.resolve(driver.folder)
    if folder is None:
        return None
    try:
        names = files.names(folder)
    except OSError as error:
        text = f"{driver.folder} can't be listed: {error.strerror}"
        return Problem("class-unreadable", text)
    paths = [(name, f"{folder}/{name}") for name in driver.entry.among(names)]
    entries = [CardEntry(driver, name, path, files.link(path)) for name, path in paths]
    # The folder lists the regions inside engines too, whose links lead there.
    return [entry for entry in entries if not driver.fme.is_on(entry.target)]


def read_card(files: Sysfs, entry: CardEntry) -> Card | None:
    """Read a card; None if it is none: it has neither engine nor port, or is gone by now."""
    driver = entry.driver
    folder = files.resolve(entry.path)
    if folder is None:
        return _dangling(files, entry)
    address, function = address_in(folder)
    try:
        names = files.names(folder)
    except FileNotFoundError:
        return _dangling(files, entry)
    except OSError as error:
        pci = read_function(files, address, function) if address else None
        failure = Problem("card-unreadable", f"{entry.shown} can't be listed: {error.strerror}")
        return failed_card(entry, pci, failure)
    engines, port_names = driver.fme.among(names), driver.port.among(names)
    if not engines and not port_names:
        return None
    pci = read_function(files, address, function) if address else None
    remarks: list[Problem] = []
    fme = None
    if engines:
        fme = _PartReader(files, folder, engines[0], remarks).read_engine(driver)
    readers = (_PartReader(files, folder, name, remarks) for name in port_names)
    ports = [each.read_port(driver, pci) for each in readers]
    ports.sort(key=lambda port: (port.number is None, port.number))
    functions = None
    if fme is not None and all(port.has_no_afu for port in ports):
        functions = read_functions(files, function)
    return Card(
        driver.name, entry.name, pci, fme, tuple(ports), tuple(remarks), functions=functions
    )


def failed_card(entry: CardEntry, pci: PciFunction | None, failure: Problem) -> Card:
    """A card that could not be read."""
    return Card(entry.driver.name, entry.name, pci, None, failure=failure)


def _dangling(files: Sysfs, entry: CardEntry) -> Card | None:
    """The card of an entry that leads nowhere, unless the entry itself is gone."""
    if files.inode(entry.path) is None:
        return None
    address, _ = address_in(entry.target)
    pci = read_function(files, address) if address else None
    text = f"leads nowhere: {entry.target}" if entry.target else "can't be followed"
    return failed_card(entry, pci, Problem("card-dangling", f"{entry.shown} {text}"))


class _PartReader:
    """An engine or a port while it is read: it collects its problems, and remarks of its card."""

    def __init__(self, files: Sysfs, card: str, name: str, remarks: list[Problem]) -> None:
        self._files = files
        self._folder = f"{card}/{name}"
        self._name = name
        self._remarks = remarks
        self._problems: list[Problem] = []

    def read_engine(self, driver: Driver) -> Fme:
        interface_id = self._read_interface_id(driver)
        self._note(self._files.node_problem(self._name))
        errors = [
            (register.reason, value)
            for register in driver.fme_registers
            for value in self._read_register(register)
        ]
        return Fme(self._name, interface_id, tuple(self._problems), tuple(errors))

    def read_port(self, driver: Driver, pci: PciFunction | None) -> Port:
        reading = self._files.read(f"{self._folder}/afu_id")
        number = self._files.read(f"{self._folder}/id")
        afu_id, problem = evaluate_id("afu-id", "afu_id", self._name, reading)
        if {reading.failure, number.failure} == {Failure.MISSING}:
            problem = port_without_driver(self._name)
        self._note(problem)
        self._note(self._files.node_problem(self._name))
        values = {each.reason: self._read_register(each) for each in driver.port_registers}
        errors = values.get("port-errors")
        return Port(
            name=self._name,
            number=int(number.text) if _DECIMAL.fullmatch(number.text) else None,
            afu_id=afu_id,
            problems=tuple(self._problems),
            pci=pci,
            errors=errors[0] if errors else None,
        )

    def _read_interface_id(self, driver: Driver) -> str:
        """The first usable interface id of an engine; a remark if others differ."""
        file, usable = driver.interface_id.text, dict[str, None]()
        _, unusable = evaluate_id("interface-id", file, self._name, _NO_FILE)
        missing = unusable
        for path in driver.interface_id.find(self._files, self._folder):
            reading = self._files.read(path)
            value, problem = evaluate_id("interface-id", file, self._name, reading)
            if problem is None:
                usable[value] = None
            elif unusable == missing:  # the first that is there gives the reason
                unusable = problem
        chosen = next(iter(usable), "")
        if not chosen:
            self._note(unusable)
        elif len(usable) > 1:
            listed = ", ".join(usable)
            text = f"the regions of {self._name} differ ({listed}); {chosen} stands for all"
            self._remarks.append(Problem("interface-ids-differ", text))
        return chosen

    def _note(self, problem: Problem | None) -> None:
        if problem:
            self._problems.append(problem)

    def _read_register(self, register: Register) -> list[int]:
        """The values of its files that are there and readable."""
        values = []
        for path in register.files.find(self._files, self._folder):
            file = path[len(self._folder) + 1 :]
            reading = self._files.read(path)
            status = evaluate_register(register.reason, file, self._name, reading)
            self._note(status.problem)
            if status.remark:
                self._remarks.append(status.remark)
            if status.value is not None:
                values.append(status.value)
        return values


DRIVERS: Final = (OPAE, DFL)

DRIVER_BY_NAME: Final = {driver.name: driver for driver in DRIVERS}

PATIENCE: Final = 3.0
"""Seconds within which each card must answer. One takes a third of a millisecond, but on a busy
machine a thread can wait for a processor for over a second."""

FUNCTION_SECONDS: Final = 1.0
"""For the functions of all cards that hang; what the kernel knows of them asks no card."""


class Scanner:
    """Scans a node repeatedly; `calls` make the reads."""

    def __init__(
        self,
        root: Path,
        calls: BlockingCalls,
        *,
        patience: float = PATIENCE,
        files: Callable[[Path], Sysfs] = Sysfs,
    ) -> None:
        self._root = root
        self._calls = calls
        self._patience = patience
        self._files = files
        self._listed: dict[str, list[CardEntry]] = {}

    @property
    def hanging(self) -> tuple[str, ...]:
        """Class folders and class entries that hang now, the longest first."""
        return tuple(key for key in self._calls.abandoned if key.startswith("/sys/"))

    async def scan(self) -> Inventory:
        """Every card of the node in a stable order, with its health, or why there is none.

        Cards that hang for the first time delay the answer by 5 s together; those that hang on, by
        nothing.
        """
        files = self._files(self._root)
        problems = await self._list(files)
        entries = [entry for each in DRIVERS for entry in self._listed.get(each.name, ())]
        reads = await self._calls.run_each(
            [
                Call(each.key, f"reading {each.shown}", partial(read_card, files, each))
                for each in entries
            ],
            timeout=self._patience,
        )
        failed = [
            (entry, error)
            for entry, error in zip(entries, reads, strict=True)
            if isinstance(error, HardwareError)
        ]
        failures = iter(await self._failed(files, failed))
        cards = [next(failures) if isinstance(each, HardwareError) else each for each in reads]
        found = tuple(card for card in cards if card is not None)
        if not found and not problems:
            problems.append(self._explain_nothing(files))
        return Inventory(found, tuple(problems))

    def scan_sync(self) -> Inventory:
        """As `scan`, and block until it is done; from any thread, also that of an event loop."""
        with ThreadPoolExecutor(1, "scan") as thread:
            return thread.submit(lambda: asyncio.run(self.scan())).result()

    async def _list(self, files: Sysfs) -> list[Problem]:
        """List the class folders; one that can't be listed keeps the entries it had."""
        problems: list[Problem] = []
        calls = [
            Call(each.folder, f"listing {each.folder}", partial(list_entries, files, each))
            for each in DRIVERS
        ]
        listings = await self._calls.run_each(calls, timeout=self._patience)
        for driver, listing in zip(DRIVERS, listings, strict=True):
            if isinstance(listing, HardwareError):
                problems.append(Problem("class-hung", str(listing)))
            elif isinstance(listing, Problem):
                problems.append(listing)
            elif listing is None:
                self._listed.pop(driver.name, None)
            else:
                self._listed[driver.name] = listing
        return problems

    async def _failed(
        self, files: Sysfs, failed: Sequence[tuple[CardEntry, HardwareError]]
    ) -> list[Card]:
        """The cards that couldn't be read, with the functions that their entries name."""
        # The link of an entry names the function, and reading that needs neither card nor driver.
        addresses = [address_in(entry.target)[0] for entry, _ in failed]
        unread = [*dict.fromkeys(filter(None, addresses))]
        calls = [
            Call(f"{DEVICES}/{each}", f"reading {each}", partial(read_function, files, each))
            for each in unread
        ]
        seconds = min(self._patience, FUNCTION_SECONDS)
        reads = await self._calls.run_each(calls, timeout=seconds)
        functions = {
            each: PciFunction(each) if isinstance(read, HardwareError) else read
            for each, read in zip(unread, reads, strict=True)
        }
        cards = []
        for (entry, error), address in zip(failed, addresses, strict=True):
            problem = Problem("card-unread", str(error))
            if isinstance(error, DeviceHung):
                problem = Problem("card-hung", str(error))
            cards.append(failed_card(entry, functions[address] if address else None, problem))
        return cards

    def _explain_nothing(self, files: Sysfs) -> Problem:
        if files.inode("/sys") is None:
            text = f"there is no sys folder below {self._root}: name the host's root with --root"
            return Problem("no-sysfs", text)
        if self._listed:
            listed = [each.folder for each in DRIVERS if each.name in self._listed]
            loaded = " and ".join(listed)
            return Problem("no-cards", f"{loaded} list no card with a port")
        folders = " nor ".join(each.folder for each in DRIVERS)
        modules = " or ".join(each.module for each in DRIVERS)
        text = f"neither {folders} exists: load the driver, {modules}"
        return Problem("no-driver", text)


def scan(root: Path) -> Inventory:
    """Every card of a node, read once."""
    return Scanner(root, BlockingCalls()).scan_sync()
