"""Finding the cards of a node below an injected root, whichever driver they have.

A read below `/sys` runs code of the card's driver and may hang, so all cards are read in one call
that can be given up, and then each card in a call of its own. A card whose read hangs is in the
answer as a failure and is not read again until that read returns. While a class folder can't be
listed, the cards that were in it last are read all the same.

Nothing else is remembered: ids, error registers and device nodes are read each time, because sysfs
shows no change in a file's time or size.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from services.devices.hardware.card import Entry, failed_card, list_entries, read_card
from services.devices.hardware.drivers.base import Driver
from services.devices.hardware.drivers.dfl import DFL
from services.devices.hardware.drivers.opae import OPAE
from services.devices.hardware.pci import DEVICES, accelerators, address_in, read_function
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Card, Inventory, PciFunction, Problem
from services.process.blocking import BlockingCalls

DRIVERS: Final = (OPAE, DFL)

DRIVER_BY_NAME: Final = {driver.name: driver for driver in DRIVERS}

CLASSES: Final = {driver.name: driver.folder for driver in DRIVERS}

PATIENCE: Final = 1.0
"""Seconds within which all cards must answer, and then each; one takes a third of a millisecond."""

ALL_CARDS: Final = "scan"

T = TypeVar("T")


class Scanner:
    """Scans a node repeatedly. It knows what hangs, so keep one; concurrent scans take turns."""

    def __init__(
        self,
        root: Path,
        *,
        patience: float = PATIENCE,
        files: Callable[[Path], Sysfs] = Sysfs,
        drivers: Sequence[Driver] = DRIVERS,
    ) -> None:
        self._root = root
        self._drivers = drivers
        self._patience = patience
        self._files = files
        self._calls = BlockingCalls()
        self._listed: dict[str, list[Entry]] = {}
        self._turn = threading.Lock()

    @property
    def hanging(self) -> tuple[str, ...]:
        """What hangs now, the longest first: class folders and class entries."""
        return tuple(key for key in self._calls.abandoned if key != ALL_CARDS)

    def scan(self) -> Inventory:
        """Every card of the node, with its health.

        A broken card is in the answer with its reasons and takes nothing from the others. What
        hangs for the first time delays the answer by twice the patience; what hangs on, by nothing.
        The order of cards is stable; without any, the reason why there is none is in the answer.
        """
        with self._turn:
            files = self._files(self._root)
            problems = self._list(files)
            entries = [
                entry for driver in self._drivers for entry in self._listed.get(driver.name, ())
            ]
            cards = self._read(files, entries)
            if not cards and not problems:
                problems.append(self._why_nothing(files))
            return Inventory(tuple(cards), tuple(problems))

    def _call(self, calls: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """The results of calls by key, without those that hang."""
        return self._calls.run_all(
            ALL_CARDS, calls, timeout=self._patience, what=f"reading cards below {self._root}"
        )

    def _list(self, files: Sysfs) -> list[Problem]:
        """List the class folders; one that can't be listed keeps the entries it had."""
        listings = self._call(
            {driver.folder: partial(list_entries, files, driver) for driver in self._drivers}
        )
        problems = []
        for driver in self._drivers:
            found = listings.get(driver.folder, self._folder_hangs(driver.folder))
            if isinstance(found, Problem):
                problems.append(found)
            elif found is None:
                self._listed.pop(driver.name, None)
            else:
                self._listed[driver.name] = found
        return problems

    def _read(self, files: Sysfs, entries: Sequence[Entry]) -> list[Card]:
        found = self._call({entry.key: partial(read_card, files, entry) for entry in entries})
        missing = [entry for entry in entries if entry.key not in found]
        if missing:
            found |= self._unread(files, missing)
        return [card for entry in entries if (card := found[entry.key]) is not None]

    def _unread(self, files: Sysfs, entries: Sequence[Entry]) -> dict[str, Card]:
        """Cards that don't answer, on their PCI functions.

        The link of an entry names the function, and reading that needs neither the card nor its
        driver.
        """
        addresses = {entry.key: address_in(entry.target)[0] for entry in entries}
        functions = self._call(
            {
                f"{DEVICES}/{address}": partial(read_function, files, address)
                for address in filter(None, addresses.values())
            }
        )
        hanging = set(self.hanging)
        cards = {}
        for entry in entries:
            address = addresses[entry.key]
            here = PciFunction(address) if address else None
            pci = functions.get(f"{DEVICES}/{address}", here)
            failure = Problem("card-hung", f"reading {entry.shown} {self._hangs}")
            if entry.key not in hanging:
                text = f"{entry.shown} is not read: {len(hanging)} reads hang already"
                failure = Problem("card-unread", text)
            cards[entry.key] = failed_card(entry, pci, failure)
        return cards

    @property
    def _hangs(self) -> str:
        return f"hangs: no answer within {self._patience:g} s"

    def _folder_hangs(self, folder: str) -> Problem:
        return Problem("class-hung", f"listing {folder} {self._hangs}")

    def _why_nothing(self, files: Sysfs) -> Problem:
        reasons = self._call({DEVICES: partial(self._explain_nothing, files)})
        return reasons.get(DEVICES) or self._folder_hangs(DEVICES)

    def _explain_nothing(self, files: Sysfs) -> Problem:
        if files.inode("/sys") is None:
            text = f"there is no sys folder below {self._root}: name the host's root with --root"
            return Problem("no-sysfs", text)
        idle = accelerators(files)
        seen = f"; accelerators on the PCI bus: {', '.join(idle)}" if idle else ""
        if self._listed:
            listed = [each.folder for each in self._drivers if each.name in self._listed]
            loaded = " and ".join(listed)
            return Problem("no-cards", f"{loaded} list no card with a port{seen}")
        folders = " nor ".join(each.folder for each in self._drivers)
        modules = " or ".join(each.module for each in self._drivers)
        text = f"neither {folders} exists: load the driver, {modules}{seen}"
        return Problem("no-driver", text)


def scan(root: Path) -> Inventory:
    """Every card of a node, read once.

    A read that hangs keeps its thread, so keep a `Scanner` to scan repeatedly.
    """
    return Scanner(root).scan()
