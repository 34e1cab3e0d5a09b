"""Reading one card: what both drivers have in common, told apart by a `Driver` value.

A card's class entry has a folder for its engine and one for each of its ports. Their names carry
the numbers that the kernel gave them (`dfl-port.3`), unique on a node and the names of their device
nodes too. Whatever a file holds, the answer is a `Card`; nothing here raises.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from services.devices.hardware.layout import (
    PORT_REGISTERS,
    Driver,
    EnginePlace,
    Layout,
    Register,
    find_layout,
)
from services.devices.hardware.pci import address_in, function_named, function_of, node_number
from services.devices.hardware.sysfs import Content, Sysfs, reading_of
from services.devices.health import (
    Failure,
    NodeState,
    Reading,
    judge_id,
    judge_node,
    judge_register,
)
from services.devices.model import Card, Fme, PciFunction, Port, Problem

_DECIMAL = re.compile(r"[0-9]{1,9}")


@dataclass(slots=True)
class Entry:
    """An entry of a class folder that may be a card.

    Args:
        driver: The driver whose folder it is in.
        name: Its name there.
        path: Its path below the root, its folder's links followed.
        target: Where it leads, as written; empty if it is no link.
        shown: Its path as people know it.
        key: Tells it from any other, and from another card of its name.
    """

    driver: Driver
    name: str
    path: str
    target: str
    shown: str = field(init=False)
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.shown = f"{self.driver.folder}/{self.name}"
        self.key = f"{self.path} -> {self.target}"


def list_entries(
    files: Sysfs, driver: Driver, last: Iterable[Entry] = ()
) -> tuple[Entry, ...] | Problem | None:
    """The entries of a driver's class folder that may be cards, by number.

    Regions inside of an engine, which the folder lists too, belong to that one's card.

    Args:
        files: The root's files.
        driver: Whose folder to list.
        last: Those that were in it when it was listed last.

    Returns:
        None if there is no such folder; a problem if it can't be listed.
    """
    folder = files.resolve(driver.folder)
    if folder is None:
        return None
    try:
        names = files.names(folder)
    except OSError as error:
        text = f"{driver.folder} can't be listed: {error.strerror}"
        return Problem("class-unreadable", text)
    known = {entry.path: entry for entry in last}
    entries = []
    for name in driver.entry.among(names):
        path = f"{folder}/{name}"
        target = files.link(path)
        entry = known.get(path)
        if entry is not None and entry.target == target:
            entries.append(entry)
        elif not driver.fme.is_on(target):
            entries.append(Entry(driver, name, path, target))
    return tuple(entries)


class Look(NamedTuple):
    """A card as it was last seen.

    Args:
        layout: Where on it what is.
        contents: What its files said, in the layout's order.
        nodes: What its device nodes were, in the layout's order.
        card: What that came to.
    """

    layout: Layout
    contents: tuple[Content, ...]
    nodes: tuple[NodeState, ...]
    card: Card


def read_card(files: Sysfs, entry: Entry, last: Look | None = None) -> Look | Card | None:
    """What a class entry says.

    Args:
        files: The root's files.
        entry: The entry.
        last: How it was last seen, if it could be read then.

    Returns:
        A card alone if it can't be read; None if the entry is none: neither engine nor port, or
        gone meanwhile.
    """
    if last is not None:
        again = _look_again(files, entry, last)
        if again is not None:
            return again
    try:
        within = _enter(files, entry)
        try:
            layout = find_layout(within, entry.driver)
            return None if layout is None else _look(within, entry, layout)
        finally:
            within.close()
    except FileNotFoundError:
        return _dangling(files, entry)
    except OSError as error:
        text = f"{entry.shown} can't be listed: {error.strerror}"
        failure = Problem("card-unreadable", text)
        pci = function_of(files, files.resolve(entry.path) or "")
        return Card(entry.driver.name, entry.name, pci, None, failure=failure)


def _enter(files: Sysfs, entry: Entry) -> Sysfs:
    """The files of a card; to be closed.

    Raises:
        OSError: Its entry leads nowhere, or to no folder.
    """
    if entry.target:
        return files.follow(entry.path, entry.target)
    return files.within(entry.path)


def _look_again(files: Sysfs, entry: Entry, last: Look) -> Look | None:
    """The card where it was; None if it has to be looked for."""
    try:
        within = files.within(last.layout.folder)
        try:
            if not last.layout.holds(within):
                return None
            look = _look(within, entry, last.layout, last)
            if look is not last and _lacks_ids(look.card) and not look.layout.stands(within):
                return None
            return look
        finally:
            within.close()
    except OSError:
        return None


def _lacks_ids(card: Card) -> bool:
    problems = [each for port in card.ports for each in port.problems]
    if card.fme is not None:
        problems.extend(card.fme.problems)
    return any(each.reason in _GONE for each in problems)


_GONE = frozenset({"afu-id-missing", "interface-id-missing"})
"""What a part that is gone is told by, and one that has no id as well."""


def _look(files: Sysfs, entry: Entry, layout: Layout, last: Look | None = None) -> Look:
    """The card, its parts being where the layout says. What says the same is the same card."""
    contents = files.contents(layout.files)
    nodes = tuple(map(files.node, layout.nodes))
    if last is not None and last.contents == contents and last.nodes == nodes:
        return last
    return Look(layout, contents, nodes, _judge(entry, layout, contents, nodes))


def _judge(
    entry: Entry, layout: Layout, contents: Iterable[Content], nodes: Iterable[NodeState]
) -> Card:
    """The card that files with these contents tell of."""
    rest, states = iter(contents), iter(nodes)
    pci = None
    if layout.address:
        numa_node = reading_of(next(rest)).text if layout.function else ""
        pci = PciFunction(layout.address, node_number(numa_node), layout.physfn)
    remarks: list[Problem] = []
    fme = None
    if layout.engine is not None:
        fme = _Part(layout.engine.name, rest, states, remarks).engine(entry, layout.engine)
    ports = [_Part(each.name, rest, states, remarks).port(pci) for each in layout.ports]
    if len(ports) > 1:
        ports.sort(key=lambda port: (port.number is None, port.number))
    return Card(entry.driver.name, entry.name, pci, fme, tuple(ports), tuple(remarks))


def _dangling(files: Sysfs, entry: Entry) -> Card | None:
    """The card of an entry that leads nowhere, unless the entry itself is gone."""
    if not files.exists(entry.path):
        return None
    target = files.link(entry.path)
    address, _ = address_in(target)
    pci = function_named(files, address) if address else None
    text = f"leads nowhere: {target}" if target else "can't be followed"
    failure = Problem("card-dangling", f"{entry.shown} {text}")
    return Card(entry.driver.name, entry.name, pci, None, failure=failure)


class _Part:
    """An engine or a port while it is judged: its problems and remarks add up.

    Args:
        name: Its folder's name.
        contents: What its files say, in the layout's order; those of the next part follow.
        states: The same of its device nodes.
        remarks: The card's list, to add to.
    """

    def __init__(
        self,
        name: str,
        contents: Iterator[Content],
        states: Iterator[NodeState],
        remarks: list[Problem],
    ) -> None:
        self._name = name
        self._contents = contents
        self._states = states
        self._remarks = remarks
        self._problems: list[Problem] = []

    def engine(self, entry: Entry, place: EnginePlace) -> Fme:
        ids = tuple(islice(self._contents, len(place.id_files)))
        interface_id = self._interface_id(entry.driver.id_file, ids)
        self._look_at_node()
        values = self._values(place.registers)
        errors = [
            (register.reason, value)
            for register, value in zip(place.registers, values, strict=True)
            if value is not None
        ]
        return Fme(self._name, self._name, interface_id, tuple(self._problems), tuple(errors))

    def port(self, pci: PciFunction | None) -> Port:
        afu_id = self._id("afu-id", "afu_id", next(self._contents))
        self._look_at_node()
        errors, *_ = self._values(PORT_REGISTERS)
        number = reading_of(next(self._contents)).text
        return Port(
            name=self._name,
            number=int(number) if _DECIMAL.fullmatch(number) else None,
            afu_id=afu_id,
            node=self._name,
            problems=tuple(self._problems),
            pci=pci,
            errors=errors,
        )

    def _interface_id(self, file: str, contents: Sequence[Content]) -> str:
        """The first usable interface id of an engine; where others differ, that is said."""
        if len(contents) == 1:
            return self._id("interface-id", file, contents[0])
        first = _NO_FILE
        usable: dict[str, None] = {}
        for content in contents:
            reading = reading_of(content)
            value, problem = judge_id("interface-id", file, self._name, reading)
            if problem is None:
                usable[value] = None
            elif first.failure is Failure.MISSING:
                first = reading
        if not usable:
            return self._id("interface-id", file, first)
        chosen = next(iter(usable))
        if len(usable) > 1:
            listed = ", ".join(usable)
            text = f"the regions of {self._name} differ ({listed}); {chosen} stands for all"
            self._remarks.append(Problem("interface-ids-differ", text))
        return chosen

    def _id(self, what: str, file: str, content: Content) -> str:
        value, problem = judge_id(what, file, self._name, reading_of(content))
        if problem:
            self._problems.append(problem)
        return value

    def _look_at_node(self) -> None:
        problem = judge_node(self._name, next(self._states))
        if problem:
            self._problems.append(problem)

    def _values(self, registers: Sequence[Register]) -> list[int | None]:
        contents = tuple(islice(self._contents, len(registers)))
        if _ZEROS.issuperset(contents):
            return [0] * len(contents)
        return [self._judge(*each) for each in zip(registers, contents, strict=True)]

    def _judge(self, register: Register, content: Content) -> int | None:
        reading = reading_of(content)
        verdict = judge_register(register.reason, register.file, self._name, reading)
        if verdict.problem:
            self._problems.append(verdict.problem)
        if verdict.remark:
            self._remarks.append(verdict.remark)
        return verdict.value


_ZEROS = frozenset({b"0\n", b"0x0\n"})
"""What registers hold nearly always: then there is nothing to judge."""

_NO_FILE = Reading(failure=Failure.MISSING)
