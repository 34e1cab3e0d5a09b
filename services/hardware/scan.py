"""Finding the cards of a node under an injected root, whichever driver they have."""

from collections.abc import Iterator
from pathlib import Path

from services.domain.devices import Card, Inventory, Problem
from services.hardware.card import Driver, read_card
from services.hardware.dfl import DFL
from services.hardware.opae import OPAE
from services.hardware.pci import Functions, accelerators
from services.hardware.sysfs import Sysfs

DRIVERS = (OPAE, DFL)
"""Both are looked for: a node may have cards under each."""


class Scanner:
    """Looks at a node again and again.

    Ids, error registers and device nodes are read each time: sysfs shows no change in a file's
    time or size. Not for use by two threads at once.

    Args:
        root: Folder below which `sys/` and `dev/` are.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._functions = Functions()

    def scan(self) -> Inventory:
        """Every card of the node, with its health.

        One broken card is in the answer with its reasons and takes nothing from the others.

        Returns:
            The cards in a stable order; without any, the reason why there is none.
        """
        files = Sysfs(self._root)
        self._functions.start()
        cards: list[Card] = []
        problems: list[Problem] = []
        loaded: list[str] = []
        for driver in DRIVERS:
            folder = files.resolve(driver.folder)
            if folder is None:
                continue
            try:
                names = files.names(folder)
            except OSError as error:
                text = f"{driver.folder} can't be listed: {error.strerror}"
                problems.append(Problem("class-unreadable", text))
                continue
            loaded.append(driver.folder)
            cards.extend(self._cards(files, driver, names))
        if not cards and not problems:
            problems.append(self._why_nothing(files, loaded))
        return Inventory(tuple(cards), tuple(problems))

    def _cards(self, files: Sysfs, driver: Driver, names: list[str]) -> Iterator[Card]:
        matching = filter(driver.entry.fullmatch, names)
        for name in sorted(matching, key=lambda name: (len(name), name)):
            card = read_card(files, self._functions, driver, name)
            if card is not None:
                yield card

    def _why_nothing(self, files: Sysfs, loaded: list[str]) -> Problem:
        if not files.exists("/sys"):
            text = f"there is no sys folder below {self._root}: name the host's root with --root"
            return Problem("no-sysfs", text)
        idle = accelerators(files)
        seen = f"; accelerators on the PCI bus: {', '.join(idle)}" if idle else ""
        if loaded:
            return Problem("no-cards", f"{' and '.join(loaded)} list no card with a port{seen}")
        folders = " nor ".join(driver.folder for driver in DRIVERS)
        text = f"neither {folders} exists: load the driver, intel-fpga-pci or dfl-pci{seen}"
        return Problem("no-driver", text)


def scan(root: Path) -> Inventory:
    """Every card of a node, looked at once; see `Scanner`."""
    return Scanner(root).scan()
