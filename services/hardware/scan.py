"""Finding the cards of a node under an injected root, whichever driver they have."""

from pathlib import Path

from services.domain.devices import Card, Inventory, Problem
from services.hardware.card import Driver, read_card
from services.hardware.dfl import DFL
from services.hardware.opae import OPAE
from services.hardware.pci import accelerators
from services.hardware.sysfs import Sysfs

DRIVERS = (OPAE, DFL)
"""Both are looked for: a node may have cards under each."""


def scan(root: Path) -> Inventory:
    """Every card of a node, with its health.

    One broken card is in the answer with its reasons and takes nothing from the others.

    Args:
        root: Folder below which `sys/` and `dev/` are.

    Returns:
        The cards in a stable order; without any, the reason why there is none.
    """
    files = Sysfs(root)
    cards: list[Card] = []
    problems: list[Problem] = []
    loaded: list[str] = []
    for driver in DRIVERS:
        try:
            names = files.names(driver.folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            text = f"{driver.folder} can't be listed: {error.strerror}"
            problems.append(Problem("class-unreadable", text))
            continue
        loaded.append(driver.folder)
        cards.extend(_cards(files, driver, names))
    if not cards and not problems:
        problems.append(_why_nothing(files, root, loaded))
    return Inventory(tuple(cards), tuple(problems))


def _cards(files: Sysfs, driver: Driver, names: list[str]) -> list[Card]:
    entries = sorted(filter(driver.entry.fullmatch, names), key=lambda name: (len(name), name))
    found = (read_card(files, driver, name) for name in entries)
    return [card for card in found if card is not None]


def _why_nothing(files: Sysfs, root: Path, loaded: list[str]) -> Problem:
    if not files.exists("/sys"):
        text = f"there is no sys folder below {root}: name the host's root folder with --root"
        return Problem("no-sysfs", text)
    idle = accelerators(files)
    seen = f"; without a driver: {', '.join(idle)}" if idle else ""
    if loaded:
        return Problem("no-cards", f"{' and '.join(loaded)} list no card with a port{seen}")
    folders = " nor ".join(driver.folder for driver in DRIVERS)
    text = f"neither {folders} exists: load the driver, intel-fpga-pci or dfl-pci{seen}"
    return Problem("no-driver", text)
