"""Where on a card what is: found by listing its folders, believed as long as they stay as they are.

Listing folders costs more than reading everything that a card has to say, and a driver makes the
folders of a card once. So a `Layout` remembers what is where, with a stamp of each folder that was
listed for it; while all stamps are the same, nothing has come or gone. What the files say is never
part of it, except what the PCI function is, which doesn't change.

In sysfs a stamp is as good as the number of folders in a folder: one that goes while another comes
isn't seen. Of what is read of each port and engine that would leave the ids missing, so whoever
misses them lists again; and after some looks everybody does.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from services.domain.devices import PciFunction
from services.hardware.pci import function_folder, unplaced
from services.hardware.sysfs import Stamp, Sysfs

BELIEVED: Final = 8
"""Looks at least after which a card's folders are listed again, and twice as many at most."""

RECENT_NS: Final = 50_000_000
"""A folder that changed within this time may have changed since: clocks of file systems tick."""


@dataclass(frozen=True, slots=True)
class Register:
    """A file that should read zero.

    Args:
        file: Path below its owner's folder.
        reason: Reason code if it doesn't.
    """

    file: str
    reason: str


class Lister:
    """Lists folders, and remembers by what they may be known again.

    Args:
        files: The root's files.
    """

    def __init__(self, files: Sysfs) -> None:
        self.stamps: dict[str, Stamp | None] = {}
        self._files = files
        self._names: dict[str, list[str]] = {}

    def names(self, folder: str) -> list[str]:
        """The names in a folder, unsorted.

        Raises:
            OSError: It can't be listed.
        """
        self.stamps[folder] = self._files.stamp(folder)
        names = self._names[folder] = self._files.names(folder)
        return names

    def listing(self, folder: str) -> dict[str, bool]:
        """The names in a folder, and whether each is a link.

        Raises:
            OSError: It can't be listed.
        """
        self.stamps[folder] = self._files.stamp(folder)
        return self._files.listing(folder)

    def matching(self, folder: str, pattern: re.Pattern[str]) -> list[str]:
        """The names in a folder that match, by their numbers; none if it can't be listed."""
        try:
            names = self.names(folder)
        except OSError:
            return []
        return sorted(filter(pattern.fullmatch, names), key=length_first)

    def has(self, folder: str, name: str) -> bool:
        """Whether there is something of a name in a folder, listed before or not."""
        names = self._names.get(folder)
        return self._files.exists(f"{folder}/{name}") if names is None else name in names

    @property
    def settled(self) -> bool:
        """Whether the stamps tell the folders from what they may become from now on."""
        now = time.time_ns()
        return all(
            stamp is None or abs(now - stamp[3]) > RECENT_NS for stamp in self.stamps.values()
        )


@dataclass(frozen=True, slots=True)
class Driver:
    """Where a driver puts what.

    Args:
        name: `opae` or `dfl`.
        folder: Its class folder, below the root.
        entry: Pattern of a card's name there.
        fme: Pattern of an engine's name, below a card.
        port: Pattern of a port's name, below a card; it ends in the number.
        id_file: Where an engine has its interface id, for messages.
        id_files: Finds the files with the interface ids of the engine in a folder.
        registers_of: Finds the registers of the engine in a folder.
    """

    name: str
    folder: str
    entry: re.Pattern[str]
    fme: re.Pattern[str]
    port: re.Pattern[str]
    id_file: str
    id_files: Callable[[Lister, str], Iterator[str]]
    registers_of: Callable[[Lister, str], Iterator[Register]]


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """Where an engine is.

    Args:
        name: Its folder's name.
        folder: Its folder below the root.
        id_files: Files that may hold its interface id, the first that does counts.
        registers: What should read zero, below its folder.
    """

    name: str
    folder: str
    id_files: tuple[str, ...]
    registers: tuple[Register, ...]


@dataclass(frozen=True, slots=True)
class PortPlace:
    """Where a port is.

    Args:
        name: Its folder's name.
        folder: Its folder below the root.
    """

    name: str
    folder: str


@dataclass(slots=True)
class Layout:
    """Where what is on a card.

    Args:
        folder: The card's folder below the root, all links followed.
        engine: Its engine; None if it has none.
        ports: Its ports, by the numbers in their names.
        pci: Its PCI function without its NUMA node, None if it has none.
        function: Folder of that, empty if it has none.
        files: What to read at each look: what the PCI function, the engine and the ports have, in
            that order; below the card's folder without it.
        nodes: The device nodes of the engine and the ports, in that order.
        stamps: What the folders that were listed are known by.
        looks: For how many more looks it may be believed.
    """

    folder: str
    engine: EnginePlace | None
    ports: tuple[PortPlace, ...]
    pci: PciFunction | None
    function: str
    files: tuple[str, ...]
    nodes: tuple[str, ...]
    stamps: tuple[tuple[str, Stamp | None], ...]
    looks: int

    def holds(self, files: Sysfs) -> bool:
        """Whether it may be believed once more, as far as the folders tell."""
        self.looks -= 1
        return self.looks >= 0 and all(files.stamp(path) == stamp for path, stamp in self.stamps)

    def stands(self, files: Sysfs) -> bool:
        """Whether engine and ports are still there."""
        folders = [port.folder for port in self.ports]
        if self.engine is not None:
            folders.append(self.engine.folder)
        return all(map(files.exists, folders))


PORT_REGISTERS: Final = (
    Register("errors/errors", "port-errors"),
    Register("ap1_event", "ap1-event"),
    Register("ap2_event", "ap2-event"),
)
"""Registers of a port, the same under both drivers; the first one is its errors."""

_PORT_FILES: Final = ("afu_id", *(register.file for register in PORT_REGISTERS), "id")


def find_layout(files: Sysfs, driver: Driver) -> Layout | None:
    """Finds out where on a card what is.

    Args:
        files: The root's files, within the card's folder.
        driver: Its driver.

    Returns:
        None if there is neither engine nor port: this is no card.

    Raises:
        OSError: The folder can't be listed.
    """
    lister, folder = Lister(files), files.folder
    names = lister.listing(folder)
    engines = sorted(filter(driver.fme.fullmatch, names), key=_number)
    ports = sorted(filter(driver.port.fullmatch, names), key=_number)
    if not engines and not ports:
        return None
    parts = {name: f"{folder}/{name}" for name in (*engines[:1], *ports)}
    linked = any(names[name] for name in parts)
    if linked:
        parts = {name: part_folder(files, folder, name) for name in parts}
    engine = _engine(lister, driver, engines[0], parts[engines[0]]) if engines else None
    places = tuple(PortPlace(name, parts[name]) for name in ports)
    address, function = function_folder(files, folder)
    return Layout(
        folder=folder,
        engine=engine,
        ports=places,
        pci=unplaced(files, address, function) if address else None,
        function=function,
        files=_files(folder, function, engine, places),
        nodes=tuple(parts),
        stamps=tuple(lister.stamps.items()),
        looks=0 if linked or not lister.settled else _spread(lister.stamps[folder]),
    )


def _spread(stamp: Stamp | None) -> int:
    """How many looks a card is believed for: not the same for all, lest all are listed at once."""
    return BELIEVED + (stamp[1] if stamp else 0) % BELIEVED


def _files(
    folder: str, function: str, engine: EnginePlace | None, ports: tuple[PortPlace, ...]
) -> tuple[str, ...]:
    """What to read, without the card's folder."""
    paths = [f"{function}/numa_node"] if function else []
    if engine is not None:
        paths += engine.id_files
        paths += [f"{engine.folder}/{register.file}" for register in engine.registers]
    for port in ports:
        paths += [f"{port.folder}/{file}" for file in _PORT_FILES]
    before = f"{folder}/"
    return tuple([path.removeprefix(before) for path in paths])


def _engine(lister: Lister, driver: Driver, name: str, folder: str) -> EnginePlace:
    return EnginePlace(
        name,
        folder,
        tuple(driver.id_files(lister, folder)),
        tuple(driver.registers_of(lister, folder)),
    )


def part_folder(files: Sysfs, entry: str, name: str) -> str:
    """The folder of an engine or port, which may be a link within the root.

    Args:
        files: The root's files.
        entry: Folder of its card.
        name: Its folder's name there.
    """
    folder = f"{entry}/{name}"
    return (files.resolve(folder) or folder) if files.link(folder) else folder


def length_first(name: str) -> tuple[int, str]:
    """Sorts names that end in a number by that number."""
    return len(name), name


def _number(name: str) -> int:
    return int(name.rpartition(".")[2])
