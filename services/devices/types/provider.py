"""The devices of a node that device types describe, each read by a call that may hang.

A scan reads the folder of types, lists what the types are about, and then reads each device that a
type names.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from services.devices.hardware.afu_ids import AfuIds, Answer, Bar
from services.devices.hardware.events import NODES
from services.devices.hardware.ofs import engine_of
from services.devices.hardware.pci import group_nodes, group_of
from services.devices.hardware.scan import PATIENCE
from services.devices.hardware.sysfs import Sysfs
from services.devices.held import HELD, Allocated
from services.devices.model import NODE_MARK, Device, Sighting, TypesReading, Value
from services.devices.nodes import FoundNode
from services.devices.ofs import is_ofs
from services.devices.types.build import (
    NOT_MATCHED,
    Matched,
    attribute_value,
    health_problems,
    make_devices,
    no_node,
)
from services.devices.types.discover import SysTree
from services.devices.types.facts import Subject, last_step
from services.devices.types.load import FileContents, LoadedTypes, parse_types, read_files
from services.devices.types.match import Fact, is_named, mismatch
from services.devices.types.model import DeviceType
from services.devices.types.node_source import NodeSource
from services.devices.vfio import Group, group_problem, is_vfio
from services.names import MAX_ID, by_number, dns_label
from services.process.blocking import BlockingCalls, Call
from services.process.errors import ExternalFailure, HardwareError
from services.process.problem import Problem

T = TypeVar("T")

DEVICE_HUNG: Final = "device-hung"

AFU_ID: Final = "afuID"
"""The attribute that is the AFU behind a function of an OFS card; read for types that name it."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A device that a type names, before it is read."""

    of: DeviceType
    id: str
    parts: tuple[Subject, ...]
    """What the type names of it: entries of one function, or functions of one IOMMU group."""

    @property
    def first(self) -> Subject:
        """The part that sorts first."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a device that is of its type."""

    subject: Subject
    fact: Fact
    problems: tuple[Problem, ...]


_Nodes: TypeAlias = list[tuple[str, FoundNode]]
"""Nodes, with the names of their entries in sysfs."""

_Read: TypeAlias = tuple[Device, ...] | Problem
"""A device as it was read, its replicas apart, or why it can't be had. It is nothing if it isn't of
the type after all.
"""


class DeviceTypes:
    """Finds what the types of a folder match, below a root."""

    name = "device-types"

    def __init__(
        self,
        folder: Path,
        root: Path,
        calls: BlockingCalls,
        *,
        domains: tuple[str, ...] = (),
        allowed: Collection[str] = (),
        patience: float = PATIENCE,
        files: Callable[[Path], Sysfs] = Sysfs,
    ) -> None:
        self._folder = folder
        self._root = root
        self._calls = calls
        self._domains = domains
        self._allowed = allowed
        self._patience = patience
        self._files = files
        self._afu_ids = AfuIds(root, calls)
        self._contents: FileContents | None = None
        """Of which the types are."""
        self._suspect: FileContents | None = None
        """What the last scan found, and couldn't use."""
        self._loaded = LoadedTypes()

    @property
    def subsystems(self) -> frozenset[str]:
        """The buses and classes of its types."""
        terms = [term for of in self._loaded.types for term in of.spec.match]
        classes = {term.class_.name for term in terms if term.class_}
        classes |= {
            each.class_ for of in self._loaded.types for each in of.spec.nodes if each.class_
        }
        # What a path leads to, or will once it is plugged in, may be of any subsystem.
        classes |= {NODES for term in terms if term.path}
        return frozenset(classes | {"pci", "usb", "vfio"}) if terms else frozenset()

    async def read(self, held: Allocated, *, divides: bool = False) -> TypesReading:
        """The devices now, and problems of the types.

        Args:
            held: The devices that containers have.
            divides: As for `make_devices`.

        Raises:
            HardwareError: Nothing can be found out.
        """
        tree = SysTree(self._files(self._root))
        problems: list[Problem] = []
        try:
            await self._run(str(self._folder), self._reload)
        except ExternalFailure as error:
            problems.append(Problem("device-types-unreadable", str(error)))
        problems += (Problem("device-type-invalid", str(each)) for each in self._loaded.problems)
        named, bars = await self._run("/sys", partial(self._find, tree, held))
        ids: Mapping[str, Answer] = {}
        if bars is not None:
            in_use = {bar.address for bar, is_held in bars.items() if is_held}
            ids = await self._afu_ids.answers(list(bars), in_use)
        calls = [
            Call(
                f"{each.of.name} {each.first.folder or each.first.name}",
                f"reading {each.first.name}",
                partial(_read, tree, each, ids, held, divides=divides, allowed=self._allowed),
            )
            for each in named
        ]
        reads = [
            Problem(DEVICE_HUNG, str(read)) if isinstance(read, HardwareError) else read
            for read in await self._calls.run_each(calls, timeout=self._patience)
        ]
        return TypesReading(tuple(_sightings([*zip(named, reads, strict=True)])), tuple(problems))

    async def _run(self, path: str, call: Callable[[], T]) -> T:
        """Make a call below a path."""
        what = f"reading {path} for device types"
        return await self._calls.run(f"{self.name} {path}", call, timeout=self._patience, what=what)

    def _reload(self) -> None:
        """Use the files as they are now; without the folder, the types stay as they were."""
        contents = read_files(self._folder)
        if contents == self._contents:
            return
        loaded = parse_types(contents, domains=self._domains, allowed=self._allowed)
        is_first = self._contents is None
        # It counts when two scans find it: a file may have been read while it was written.
        if loaded.problems and not is_first and contents != self._suspect:
            self._suspect = contents
            return
        self._loaded, self._contents, self._suspect = loaded, contents, None

    def _find(self, tree: SysTree, held: Allocated) -> tuple[list[_Named], dict[Bar, bool] | None]:
        named = [each for of in self._loaded.types for each in _named(tree, of)]
        asking = [each for each in named if AFU_ID in each.of.spec.used]
        return named, _bars(tree, asking, {key for _, key in held}) if asking else None


def _sightings(reads: Sequence[tuple[_Named, _Read]]) -> Iterator[Sighting]:
    """Yield what was read; a device that hangs, or can't be had any more, is broken."""
    matched = {
        part.place
        for named, read in reads
        if isinstance(read, tuple) and read
        for part in named.parts
    }
    for named, read in reads:
        source = named.of.name, named.id
        is_of_another = not matched.isdisjoint(part.place for part in named.parts)
        if isinstance(read, tuple):
            yield Sighting(source, read)
        elif read.code == DEVICE_HUNG or not (is_of_another or read.code == NOT_MATCHED):
            yield Sighting(source, broken=read, unknown=_not_offered(named, read))
        elif read.code != NOT_MATCHED or not is_of_another:
            yield Sighting(source, (_not_offered(named, read),))


def _named(tree: SysTree, of: DeviceType) -> list[_Named]:
    """The devices that a type names."""
    # All that it names of a PCI function, a USB device or an IOMMU group is one device. So a device
    # keeps its id whatever else its driver makes of it, and no two containers share a function.
    groups: dict[str, dict[Subject, None]] = {}
    for term in of.spec.match:
        for subject in tree.subjects(term):
            if is_named(term, tree.facts(subject)):
                group = group_of(tree.files, subject.pci) if of.spec.is_vfio else ""
                groups.setdefault(group or subject.place, {})[subject] = None
    devices = [sorted(parts, key=lambda each: by_number(each.name)) for parts in groups.values()]
    return [
        _Named(of, _id(tree, of, first), (first, *others))
        for first, *others in sorted(devices, key=lambda parts: by_number(parts[0].name))
    ]


def _id(tree: SysTree, of: DeviceType, first: Subject) -> str:
    """An id that a device keeps while it stays where it is, whatever else is plugged in."""
    # A group's lowest address, whichever of its functions a type matches.
    members = tree.group(first.pci).members if of.spec.is_vfio else ()
    addresses = sorted(each.address for each in members if not each.is_bridge)
    return dns_label(next(iter(addresses), _place_of(first) or first.name))


def _place_of(subject: Subject) -> str:
    """Where a device is plugged in; empty if that is unknown."""
    # Serial numbers are no ids: two devices may have one, and the first would have to change its id
    # when the second is plugged in, and so be given to two containers.
    return subject.address or last_step(subject.usb or subject.other)


def _bars(tree: SysTree, named: Iterable[_Named], held: Collection[str]) -> dict[Bar, bool]:
    """The BARs of functions that VFIO has and that may have an AFU, and whether each is in use."""
    bars: dict[Bar, bool] = {}
    for each in named:
        for part in each.parts:
            if not _is_ofs(tree, part) or not is_vfio(str(tree.facts(part)("kernelDriver"))):
                continue
            bar = Bar(part.address, f"{part.pci}/resource0", tree.files.inode(part.pci))
            # A container that has a group has all of that, one that has the engine its functions.
            ids = {each.id, dns_label(part.address), engine_of(tree.files, part.pci)}
            bars[bar] = bars.get(bar, False) or not ids.isdisjoint(held)
    return bars


def _is_ofs(tree: SysTree, subject: Subject) -> bool:
    fact = tree.facts(subject)
    return is_ofs(f"{fact('vendorID')}:{fact('deviceID')}", str(fact("subsystemID")))


def _matching(
    tree: SysTree, named: _Named, afu_ids: Mapping[str, Answer], held: Allocated
) -> list[_Part] | _Read:
    """The parts that are of the type after all; without any, what is read instead."""
    of, wrong, parts = named.of, list[str](), list[_Part]()
    for subject in named.parts:
        fact = _facts(tree, of, subject, afu_ids)
        other, unknown = mismatch(of.spec.match, fact), fact(AFU_ID)
        kept = list[Problem]()
        if other is not None and isinstance(unknown, Problem):
            if (of.resource, named.id) not in held:
                return unknown
            kept.append(unknown)  # with its nodes, its container can start again
        elif other is not None:
            wrong.append(other)
            continue
        parts.append(_Part(subject, fact, (*kept, *health_problems(of, fact))))
    if parts:
        return parts
    near = next(filter(None, wrong), "")
    return Problem(NOT_MATCHED, near) if near else ()


def _read(
    tree: SysTree,
    named: _Named,
    afu_ids: Mapping[str, Answer],
    held: Allocated,
    *,
    divides: bool,
    allowed: Collection[str],
) -> _Read:
    """Read a device: its parts that are of the type after all, their attributes, and its nodes."""
    of, parts = named.of, _matching(tree, named, afu_ids, held)
    if not isinstance(parts, list):
        return parts
    subjects = [each.subject for each in parts]
    problems = [problem for each in parts for problem in each.problems]
    addresses = tuple(dict.fromkeys(each.address for each in subjects if each.address))
    claims = {*addresses, _place_of(subjects[0])} - {""}
    if of.spec.is_vfio:
        group = tree.group(subjects[0].pci)
        problem = group_problem(group, addresses) or _engine_problem(tree, group)
        if problem is not None:
            return problem
        problems += _held_with_engine(tree, subjects, held)
        claims.update(each.address for each in group.members if not each.is_bridge)
        nodes_of_sources = [[("", each) for each in group_nodes(tree.files, group.number)]]
    else:
        nodes_of_sources = [_nodes(tree, subjects, source) for source in of.spec.sources]
    found = [*zip(of.spec.sources, nodes_of_sources, strict=True)]
    nodes = [(source, [node for _, node in each]) for source, each in found]
    card, fact = subjects[0].name, parts[0].fact
    seen = Matched(named.id, card, fact, nodes, addresses, frozenset(claims), tuple(problems))
    if of.spec.each == "node":
        if not any(each for _, each in found):
            needed = next((no_node(each) for each in of.spec.sources if not each.optional), None)
            return needed or Problem(NOT_MATCHED, no_node(of.spec.sources[0]).text)
        alone = _each_node(seen, parts, found)
    else:
        alone = iter([seen])
    return tuple(
        device
        for one in alone
        for device in make_devices(of, one, divides=divides, allowed=allowed)
    )


def _each_node(
    seen: Matched, parts: Sequence[_Part], found: Iterable[tuple[NodeSource, _Nodes]]
) -> Iterator[Matched]:
    """Yield the nodes of a device, each as a device of its own."""
    by_name = {each.subject.name: each for each in parts}
    names = set[str]()
    for source, nodes in found:
        for name, node in nodes:
            # A matched entry has attributes of its own; another node has those of the device.
            part = by_name.get(name) if source.own else None
            if name not in names:
                yield replace(
                    seen,
                    id=_node_id(seen.id, name),
                    card=name,
                    nodes=[(source, [node])],
                    fact=part.fact if part else seen.fact,
                    problems=part.problems if part else seen.problems,
                )
            names.add(name)


def _node_id(card: str, name: str) -> str:
    # By the kernel's name, not by a count: one that goes must not shift the ids of the others.
    made = f"{card}{NODE_MARK}{dns_label(name)}"
    return made if len(made) <= MAX_ID else dns_label(f"{card}-{name}")


def _engine_problem(tree: SysTree, group: Group) -> Problem | None:
    """Why no container gets a group with the management engine of an OFS card."""
    given = {each.address for each in group.members if each.has_vfio}
    for each in tree.functions:
        if (
            each.address in given
            and each.address.endswith(".0")  # the first function is the engine
            and _is_ofs(tree, each)
            and not tree.facts(each)("virtualFunction")
        ):
            text = f"{each.address} is the management engine of an OFS card"
            return Problem("node-denied", f"{text}, and never handed out")
    return None


def _held_with_engine(
    tree: SysTree, subjects: Iterable[Subject], held: Allocated
) -> Iterator[Problem]:
    """Yield who has the engine of an OFS card: in mode regiondevel its functions go with it."""
    engines = {engine_of(tree.files, each.pci) for each in subjects if _is_ofs(tree, each)}
    for resource, key in held:
        if key in engines:
            yield Problem(HELD, f"a container has {key} as {resource}, and its functions with it")


def _facts(tree: SysTree, of: DeviceType, subject: Subject, afu_ids: Mapping[str, Answer]) -> Fact:
    """The attributes of a device: what its type declares, and what the kernel knows."""
    own: dict[str, Value | Problem] = {"type": of.name}
    if AFU_ID in of.spec.used and subject.address in afu_ids:
        own[AFU_ID] = afu_ids[subject.address]
    for attribute in of.spec.attributes:
        own[attribute.name] = attribute_value(attribute, tree.attribute(subject, attribute.file))
    kernel = tree.facts(subject)
    return lambda name: own[name] if name in own else kernel(name)


def _nodes(tree: SysTree, parts: Sequence[Subject], source: NodeSource) -> _Nodes:
    """The nodes of a source, with the names of their entries."""
    if source.own:
        return [(each.name, tree.own_node(each)) for each in parts]
    nodes = tree.nodes_of_class(parts[0], source.class_ or "")
    return [(name, node) for name, node in nodes if source.names(name)]


def _not_offered(named: _Named, problem: Problem) -> Device:
    """A device that is listed with a reason, and offered under no resource."""
    return Device(named.id, "", reasons=(problem,), card=named.first.name, type=named.of.name)
