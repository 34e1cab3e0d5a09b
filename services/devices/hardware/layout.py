"""Where on a card what is: found by listing its folders, believed as long as they stay as they are.

Listing folders costs more than reading everything that a card has to say, and a driver makes the
folders of a card once. So a `Layout` remembers what is where, with a stamp of each folder that was
listed for it; while all stamps are the same, nothing has come or gone. What the files say is never
part of it, except what the PCI function is, which doesn't change.

In sysfs a stamp is as good as the number of folders in a folder: one that goes while another comes
isn't seen. Of what is read of each port and engine that would leave the ids missing, so whoever
misses them lists again; and after some looks everybody does.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from services.devices.hardware.numbered import Numbered
from services.devices.hardware.pci import function_folder, physical_of
from services.devices.hardware.sysfs import Stamp, Sysfs

BELIEVED: Final = 8
"""Looks at least after which a card's folders are listed again, and twice as many at most."""

RECENT_NS: Final = 50_000_000
"""A folder that changed within this time may have changed since: clocks of file systems tick."""


class Register(NamedTuple):
    """A file that should read zero.

    Args:
        file: Path below its owner's folder.
        reason: Reason code if it doesn't.
    """

    file: str
    reason: str


class Lister:
    """Lists folders of a card, and remembers by what they may be known again.

    Args:
        files: The root's files, within the card's folder.
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
        try:
            self.stamps[folder], names = self._files.stamped(folder)
        except OSError:
            self.stamps[folder] = self._files.stamp(folder)
            raise
        self._names[folder] = names
        return names

    def listing(self, folder: str) -> dict[str, bool]:
        """As `names`, and of each whether it is a link."""
        self.stamps[folder], names = self._files.listing(folder)
        return names

    def numbered(self, folder: str, kind: Numbered) -> list[str]:
        """The names of a kind in a folder, by number; none if it can't be listed."""
        try:
            return kind.among(self.names(folder))
        except OSError:
            return []

    def has(self, folder: str, name: str) -> bool:
        """Whether there is something of a name in a folder, listed before or not."""
        names = self._names.get(folder)
        return self._files.exists(f"{folder}/{name}") if names is None else name in names

    @property
    def settled(self) -> bool:
        """Whether the stamps tell the folders from what they may become from now on."""
        now = time.time_ns()
        for stamp in self.stamps.values():
            if stamp is not None and abs(now - stamp[3]) <= RECENT_NS:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Driver:
    """Where a driver puts what.

    Args:
        name: `opae` or `dfl`.
        folder: Its class folder, below the root.
        entry: What cards are called there.
        fme: What engines are called, below a card.
        port: What ports are called, below a card.
        id_file: Where an engine has its interface id, for messages.
        id_files: Finds the files with the interface ids of the engine in a folder.
        registers_of: Finds the registers of the engine in a folder.
    """

    name: str
    folder: str
    entry: Numbered
    fme: Numbered
    port: Numbered
    id_file: str
    id_files: Callable[[Lister, str], Iterator[str]]
    registers_of: Callable[[Lister, str], Iterator[Register]]


class EnginePlace(NamedTuple):
    """Where an engine is.

    Args:
        name: Its folder's name.
        folder: Its folder: its name, or where that leads if it is a link.
        id_files: Files that may hold its interface id, the first that does counts.
        registers: What should read zero, below its folder.
    """

    name: str
    folder: str
    id_files: tuple[str, ...]
    registers: tuple[Register, ...]


class PortPlace(NamedTuple):
    """Where a port is.

    Args:
        name: Its folder's name.
        folder: Its folder: its name, or where that leads if it is a link.
    """

    name: str
    folder: str


@dataclass(slots=True)
class Layout:
    """Where what is on a card; what is below the card's folder without that.

    Args:
        folder: The card's folder below the root, all links followed.
        engine: Its engine; None if it has none.
        ports: Its ports, by the numbers in their names.
        address: Address of its PCI function, empty if it has none.
        physfn: Address of the physical function, if that is a virtual one.
        function: Folder of its PCI function, empty if that has none.
        files: What to read at each look: what the PCI function, the engine and the ports have, in
            that order.
        nodes: The device nodes of the engine and the ports, in that order.
        stamps: What the folders that were listed are known by.
        looks: For how many more looks it may be believed.
    """

    folder: str
    engine: EnginePlace | None
    ports: tuple[PortPlace, ...]
    address: str
    physfn: str | None
    function: str
    files: tuple[str, ...]
    nodes: tuple[str, ...]
    stamps: tuple[tuple[str, Stamp | None], ...]
    looks: int

    def holds(self, files: Sysfs) -> bool:
        """Whether it may be believed once more, as far as the folders tell."""
        self.looks -= 1
        if self.looks < 0:
            return False
        for path, stamp in self.stamps:  # noqa: SIM110 - so often that all() would tell
            if files.stamp(path) != stamp:
                return False
        return True

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

_HERE: Final = "."
"""The card's folder."""

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
    names = lister.listing(_HERE)
    engines, ports = driver.fme.among(names)[:1], driver.port.among(names)
    parts = (*engines, *ports)
    if not parts:
        return None
    linked = [name for name in parts if names[name]]
    folders = {name: files.resolve(f"{folder}/{name}") or name for name in linked}
    engine = None
    if engines:
        engine = _engine(lister, driver, parts[0], folders.get(parts[0], parts[0]))
    places = tuple([PortPlace(name, folders.get(name, name)) for name in ports])
    address, function = function_folder(files, folder)
    return Layout(
        folder=folder,
        engine=engine,
        ports=places,
        address=address,
        physfn=physical_of(files, function),
        function=function,
        files=_files(function, engine, places),
        nodes=parts,
        stamps=tuple(lister.stamps.items()),
        looks=0 if linked or not lister.settled else _spread(lister.stamps[_HERE]),
    )


def _spread(stamp: Stamp | None) -> int:
    """How many looks a card is believed for: not the same for all, lest all are listed at once."""
    return BELIEVED + (stamp[1] if stamp else 0) % BELIEVED


def _files(
    function: str, engine: EnginePlace | None, ports: tuple[PortPlace, ...]
) -> tuple[str, ...]:
    """What to read."""
    paths = [f"{function}/numa_node"] if function else []
    if engine is not None:
        paths += engine.id_files
        before = f"{engine.folder}/"
        paths += [before + file for file, _ in engine.registers]
    for port in ports:
        before = f"{port.folder}/"
        paths += [before + file for file in _PORT_FILES]
    return tuple(paths)


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
