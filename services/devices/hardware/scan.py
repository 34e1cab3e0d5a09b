"""Finding the cards of a node under an injected root, whichever driver they have.

Whatever a scan reads may hang, so it uses `BlockingCalls`: a card whose read hangs is in the answer
as a failure and is not read again until that read returns; where a class folder can't be listed,
the cards that were in it last are read all the same.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from services.devices.hardware.card import Entry, Look, list_entries, read_card
from services.devices.hardware.drivers.dfl import DFL
from services.devices.hardware.drivers.opae import OPAE
from services.devices.hardware.layout import Driver
from services.devices.hardware.pci import DEVICES, accelerators, address_in, function_named
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Card, Inventory, PciFunction, Problem
from services.process.blocking import BlockingCalls

T = TypeVar("T")

SCAN: Final = "scan"
"""The key of the call that reads all cards, as long as none hangs."""

DRIVERS = (OPAE, DFL)
"""Both are looked for: a node may have cards under each."""

PATIENCE = 1.0
"""Seconds within which a card must answer; one is read in a fraction of a millisecond."""

CLASSES = {driver.name: driver.folder for driver in DRIVERS}
"""The class folders, by the names of their drivers."""


class Scanner:
    """Looks at a node again and again.

    Ids, error registers and device nodes are read each time: sysfs shows no change in a file's
    time or size. Keep one for as long as the node is looked at, since it knows what hangs; threads
    that call it at once take turns.

    Args:
        root: Folder below which `sys/` and `dev/` are.
        patience: Seconds within which a card must answer.
        files: Gives the files of a root.
    """

    def __init__(
        self,
        root: Path,
        *,
        patience: float = PATIENCE,
        files: Callable[[Path], Sysfs] = Sysfs,
    ) -> None:
        self._root = root
        self._files = files
        self._patience = patience
        self._calls = BlockingCalls()
        self._listed: dict[str, tuple[Entry, ...]] = {}
        self._looks: dict[str, Look] = {}
        self._pci: dict[str, PciFunction | None] = {}
        self._turn = threading.Lock()

    @property
    def hanging(self) -> tuple[str, ...]:
        """What hangs now, the longest first: class folders and class entries, as paths.

        Each has a thread of its own; between scans there are no others.
        """
        return tuple(key for key in self._calls.abandoned if key != SCAN)

    def scan(self) -> Inventory:
        """Every card of the node, with its health.

        One broken card is in the answer with its reasons and takes nothing from the others. What
        hangs for the first time delays the answer by the patience, and what hangs on by nothing.

        Returns:
            The cards in a stable order; without any, the reason why there is none.

        Raises:
            HardwareError: The system gives no thread to read in.
        """
        with self._turn:
            files = self._files(self._root)
            problems = self._list(files)
            entries = [entry for driver in DRIVERS for entry in self._listed.get(driver.folder, ())]
            cards = self._read(files, entries)
            if not cards and not problems:
                problems.append(self._why_nothing(files))
            return Inventory(tuple(cards), tuple(problems))

    def _run(self, calls: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """The results of the calls that answer: all in one thread, unless one of them hangs."""
        return self._calls.run_all(SCAN, calls, timeout=self._patience, what="reading cards")

    def _list(self, files: Sysfs) -> list[Problem]:
        """Lists the class folders; one that can't be listed keeps the entries it had."""
        last = self._listed
        listings = self._run(
            {
                driver.folder: partial(list_entries, files, driver, last.get(driver.folder, ()))
                for driver in DRIVERS
            }
        )
        problems = []
        for driver in DRIVERS:
            found = listings.get(driver.folder, self._class_hangs(driver))
            if isinstance(found, Problem):
                problems.append(found)
            elif found is None:
                self._listed.pop(driver.folder, None)
            else:
                self._listed[driver.folder] = found
        return problems

    def _class_hangs(self, driver: Driver) -> Problem:
        return Problem("class-hung", f"listing {driver.folder} {self._hangs()}")

    def _read(self, files: Sysfs, entries: Sequence[Entry]) -> list[Card]:
        read = self._run(
            {
                entry.key: partial(read_card, files, entry, self._looks.get(entry.key))
                for entry in entries
            }
        )
        self._looks = {key: each for key, each in read.items() if isinstance(each, Look)}
        found = {key: each.card if isinstance(each, Look) else each for key, each in read.items()}
        missing = [entry for entry in entries if entry.key not in found]
        if missing:
            found |= self._hung(files, missing)
        cards = {entry.key: card for entry in entries if (card := found[entry.key]) is not None}
        self._pci = {key: card.pci for key, card in cards.items()}
        return list(cards.values())

    def _hung(self, files: Sysfs, entries: Sequence[Entry]) -> dict[str, Card]:
        """What stands for cards that don't answer: on the PCI function that they were on.

        Of one that has never answered, the PCI bus knows the function, whose files need neither
        the card nor its driver.
        """
        addresses = {entry.key: address_in(entry.target)[0] for entry in entries}
        unknown = self._run(
            {
                f"{DEVICES}/{address}": partial(function_named, files, address)
                for key, address in addresses.items()
                if address and key not in self._pci
            }
        )
        stuck = set(self.hanging)
        cards = {}
        for entry in entries:
            address = addresses[entry.key]
            pci = self._pci.get(entry.key) or unknown.get(f"{DEVICES}/{address}")
            if pci is None and address:
                pci = PciFunction(address)
            failure = Problem("card-hung", f"reading {entry.shown} {self._hangs()}")
            if entry.key not in stuck:
                text = f"{entry.shown} is not read: {len(stuck)} reads hang already"
                failure = Problem("card-unread", text)
            card = Card(entry.driver.name, entry.name, pci, None, failure=failure)
            cards[entry.key] = card
        return cards

    def _hangs(self) -> str:
        return f"hangs: no answer within {self._patience:g} s"

    def _why_nothing(self, files: Sysfs) -> Problem:
        why = self._run({DEVICES: partial(self._reason, files)})
        return why.get(DEVICES) or Problem("class-hung", f"listing {DEVICES} {self._hangs()}")

    def _reason(self, files: Sysfs) -> Problem:
        """Why there is no card."""
        if not files.exists("/sys"):
            text = f"there is no sys folder below {self._root}: name the host's root with --root"
            return Problem("no-sysfs", text)
        idle = accelerators(files)
        seen = f"; accelerators on the PCI bus: {', '.join(idle)}" if idle else ""
        if self._listed:
            loaded = " and ".join(self._listed)
            return Problem("no-cards", f"{loaded} list no card with a port{seen}")
        folders = " nor ".join(driver.folder for driver in DRIVERS)
        text = f"neither {folders} exists: load the driver, intel-fpga-pci or dfl-pci{seen}"
        return Problem("no-driver", text)


def scan(root: Path) -> Inventory:
    """Every card of a node, looked at once; see `Scanner`.

    A read that hangs keeps its thread: whoever looks again and again keeps a `Scanner`.
    """
    return Scanner(root).scan()
