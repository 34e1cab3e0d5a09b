"""Finding the cards of a node below an injected root, whichever driver they have.

A read below `/sys` runs code of the card's driver and may hang, so each card is read by a call of
its own that can be abandoned (`services.process.blocking`). Everything is read each time, because
sysfs shows no change in a file's time or size.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from services.devices.hardware.card import CardEntry, failed_card, list_entries, read_card
from services.devices.hardware.drivers.dfl import DFL
from services.devices.hardware.drivers.opae import OPAE
from services.devices.hardware.pci import DEVICES, address_in, read_function
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Card, Inventory, PciFunction
from services.process.blocking import BlockingCalls, Call
from services.process.errors import DeviceHung, HardwareError
from services.process.problem import Problem

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
