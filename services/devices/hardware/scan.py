"""Finding the cards of a node below an injected root, whichever driver they have.

A read below `/sys` runs code of the card's driver and may hang, so each card is a step that can be
abandoned (`services.process.blocking`). Everything is read each time, because sysfs shows no change
in a file's time or size.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from services.devices.hardware.card import ClassEntry, failed_card, list_entries, read_card
from services.devices.hardware.drivers.base import Driver
from services.devices.hardware.drivers.dfl import DFL
from services.devices.hardware.drivers.opae import OPAE
from services.devices.hardware.pci import DEVICES, address_in, read_function
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Card, Inventory, PciFunction
from services.process.blocking import BlockingCalls, Steps
from services.process.errors import DeviceHung, HardwareError
from services.process.problem import Problem

DRIVERS: Final = (OPAE, DFL)

DRIVER_BY_NAME: Final = {driver.name: driver for driver in DRIVERS}

PATIENCE: Final = 3.0
"""Seconds within which each card must answer. One takes a third of a millisecond, but on a busy
machine a thread can wait for a processor for over a second."""

KEY: Final = "cards"
"""The key under which the steps of a scan are made."""


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
        self._listed: dict[str, list[ClassEntry]] = {}

    @property
    def hanging(self) -> tuple[str, ...]:
        """What hangs now, the longest first: class folders and class entries."""
        return tuple(key for key in self._calls.abandoned if key.startswith("/sys/"))

    async def scan(self) -> Inventory:
        """Every card of the node in a stable order, with its health, or why there is none.

        What hangs for the first time delays the answer by the patience; what hangs on, by nothing.
        """
        return await self._calls.run_steps(KEY, self.steps(), timeout=self._patience)

    def scan_sync(self) -> Inventory:
        """As `scan`, and block until it is done."""
        return self._calls.run_steps_sync(KEY, self.steps(), timeout=self._patience)

    def steps(self) -> Steps[Inventory]:
        """The steps of one scan, each of which may hang."""
        files = self._files(self._root)
        problems: list[Problem] = []
        for driver in DRIVERS:
            problem = yield from self._list(files, driver)
            if problem is not None:
                problems.append(problem)
        cards: list[Card] = []
        for driver in DRIVERS:
            for entry in self._listed.get(driver.name, ()):
                card = yield from _read(files, entry)
                if card is not None:
                    cards.append(card)
        if not cards and not problems:
            problems.append(self._explain_nothing(files))
        return Inventory(tuple(cards), tuple(problems))

    def _list(self, files: Sysfs, driver: Driver) -> Steps[Problem | None]:
        """List a class folder; one that can't be listed keeps the entries it had."""
        try:
            listing = yield driver.folder, partial(list_entries, files, driver)
        except HardwareError as error:
            return Problem("class-hung", f"listing {driver.folder} hangs: {error}")
        if isinstance(listing, Problem):
            return listing
        if listing is None:
            self._listed.pop(driver.name, None)
        else:
            self._listed[driver.name] = listing
        return None

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


def _read(files: Sysfs, entry: ClassEntry) -> Steps[Card | None]:
    try:
        card: Card | None = yield entry.key, partial(read_card, files, entry)
    except DeviceHung as error:
        failure = Problem("card-hung", f"reading {entry.shown} hangs: {error}")
    except HardwareError as error:
        failure = Problem("card-unread", f"{entry.shown}: {error}")
    else:
        return card
    # The link of an entry names the function, and reading that needs neither card nor driver.
    address = address_in(entry.target)[0]
    function = PciFunction(address) if address else None
    if address:
        with suppress(HardwareError):
            function = yield f"{DEVICES}/{address}", partial(read_function, files, address)
    return failed_card(entry, function, failure)


def scan(root: Path) -> Inventory:
    """Every card of a node, read once."""
    return Scanner(root, BlockingCalls()).scan_sync()
