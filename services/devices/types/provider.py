"""The devices of a node that device types describe, each read as a step that may hang.

A scan reads the folder of types if it has changed, lists what the types are about, and then reads
each device that a type names. A device whose reads hang stays as it was offered, unhealthy, and
takes nothing from the others.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from services.devices.hardware.afu_ids import AfuIds, Answer, Bar
from services.devices.hardware.sysfs import Sysfs
from services.devices.labels import label
from services.devices.model import Device, DeviceNode, Problem, Value
from services.devices.nodes import FoundNode, check_node
from services.devices.ofs import is_ofs
from services.devices.port_owners import HELD, Allocated
from services.devices.provider import Found
from services.devices.types.build import (
    NOT_MATCHED,
    PUBLISHED,
    Sighting,
    attribute_value,
    health_problems,
    make_devices,
    not_offered,
    unhealthy,
)
from services.devices.types.discover import SysTree, natural
from services.devices.types.facts import Subject
from services.devices.types.load import WHAT, LoadedTypes, load_types
from services.devices.types.match import Mismatch, is_named, mismatch
from services.devices.types.model import DeviceType, NodeSource
from services.devices.vfio import GroupMember, group_problem
from services.process.blocking import BlockingCalls, Steps
from services.process.errors import ExternalFailure, HardwareError
from services.process.folder import Signature, signature
from services.process.text import listing

PATIENCE: Final = 1.0
"""Seconds within which each device must answer."""

AFU_ID: Final = "afuID"
"""The attribute that is the AFU behind a function of an OFS card; read for types that name it."""


@dataclass(frozen=True, slots=True)
class _Named:
    """What a type names, before it is read."""

    of: DeviceType
    subject: Subject
    id: str
    is_only: bool
    """Whether the type names nothing else of the same PCI function or USB device."""


_Read: TypeAlias = Sighting | Mismatch | Problem
"""A device as it was read, why it isn't of the type after all, or why it couldn't be read."""


class DeviceTypes:
    """A provider: what the types of a folder match, below a root."""

    name = "device-types"

    def __init__(
        self,
        folder: Path,
        root: Path,
        calls: BlockingCalls,
        *,
        domains: tuple[str, ...] = (),
        patience: float = PATIENCE,
        files: Callable[[Path], Sysfs] = Sysfs,
        holders: Callable[[], Awaitable[Allocated]] | None = None,
    ) -> None:
        self._folder = folder
        self._root = root
        self._calls = calls
        self._domains = domains
        self._patience = patience
        self._files = files
        self._holders = holders
        self._afu_ids = AfuIds(root, calls)
        self._signature: Signature | None = None
        self._loaded = LoadedTypes()
        self._offered: Sequence[Device] = ()
        """What has a resource, by the last scan: it stays offered, unhealthy, while it hangs."""

    @property
    def subsystems(self) -> frozenset[str]:
        """The buses and classes of its types."""
        terms = [term for of in self._loaded.types for term in of.spec.match]
        classes = {term.class_.name for term in terms if term.class_}
        return frozenset(classes | {"pci", "usb", "vfio"}) if terms else frozenset()

    async def devices(self) -> Found:
        """The devices now.

        Raises:
            HardwareError: The devices of the node can't be listed.
        """
        held = await self._holders() if self._holders else ()
        return await self._calls.run_steps(self.name, self.steps(held), timeout=self._patience)

    def devices_sync(self, held: Allocated = ()) -> Found:
        """As `devices`, and block until it is done."""
        return self._calls.run_steps_sync(self.name, self.steps(held), timeout=self._patience)

    def steps(self, allocated: Allocated) -> Steps[Found]:
        """The steps of one scan, each of which may hang; `allocated` is what containers have."""
        held = frozenset(allocated)
        problems: list[Problem] = []
        try:
            yield f"{self.name} {self._folder}", self._reload
        except ExternalFailure as error:
            problems.append(Problem("device-types-unreadable", str(error)))
        problems += (Problem("device-type-invalid", str(each)) for each in self._loaded.problems)
        tree = SysTree(self._files(self._root))
        named: list[_Named] = yield f"{self.name} /sys", partial(self._list, tree)
        ids = yield from self._read_afu_ids(tree, named, held)
        reads: list[tuple[_Named, _Read]] = []
        for each in named:
            try:
                afu_id = ids.get(each.subject.address) if _asks_afu_id(each.of) else None
                is_held = (each.of.resource, each.id) in held
                read: _Read = yield (
                    self._key(each),
                    partial(_read, tree, each, afu_id, is_held=is_held),
                )
            except HardwareError as error:
                text = f"reading {each.subject.name} hangs: {error}"
                reads.append((each, Problem("device-hung", text)))
            else:
                reads.append((each, read))
        devices = tuple(_not_held(each, held) for each in _devices(tree, reads, self._offered))
        self._offered = [each for each in devices if each.resource]
        return Found(devices, tuple(problems))

    def _read_afu_ids(
        self, tree: SysTree, named: Iterable[_Named], held: Allocated
    ) -> Steps[dict[str, Answer]]:
        """Read which AFUs are behind functions of OFS cards, for the types that ask for it."""
        subjects = [each.subject for each in named if _asks_afu_id(each.of)]
        if not subjects:
            return {}
        try:
            bars: list[Bar] = yield f"{self.name} {AFU_ID}", partial(_bars, tree, subjects)
        except HardwareError:
            return {}
        ids = {device for _, device in held}
        in_use = {bar.address for bar in bars if label(bar.address) in ids}
        return (yield from self._afu_ids.steps(bars, in_use))

    def _key(self, named: _Named) -> str:
        return f"{named.of.name} {named.subject.folder or named.subject.name}"

    def _reload(self) -> None:
        """Read the folder again if it has changed; without it, the types stay as they were."""
        now = signature(self._folder, what=WHAT)
        if now != self._signature:
            self._loaded = load_types(self._folder, domains=self._domains)
            self._signature = now

    def _list(self, tree: SysTree) -> list[_Named]:
        return [each for of in self._loaded.types for each in _named(tree, of)]


def _named(tree: SysTree, of: DeviceType) -> Iterator[_Named]:
    """Yield what a type names, with ids that stay."""
    found: dict[tuple[str, str], Subject] = {}
    for term in of.spec.match:
        for subject in tree.subjects(term):
            if is_named(term, tree.facts(subject)):
                found.setdefault((subject.folder, subject.name), subject)
    subjects = sorted(found.values(), key=lambda each: natural(each.name))
    owners = [each.owner for each in subjects]
    for subject in subjects:
        is_only = not subject.owner or owners.count(subject.owner) == 1
        key = _place_of(subject) or subject.name
        yield _Named(of, subject, label(key if is_only else f"{key}-{subject.name}"), is_only)


def _place_of(subject: Subject) -> str:
    """Where a device is plugged in; empty if that is unknown.

    Serial numbers are no ids: two devices may have one, and the first would have to change its id
    when the second is plugged in, and so be given to two containers.
    """
    return subject.address or subject.usb.rpartition("/")[2]


def _asks_afu_id(of: DeviceType) -> bool:
    conditions = (each for term in of.spec.match for each in term.where)
    return AFU_ID in {*of.spec.used, *(each.attribute for each in conditions)}


def _bars(tree: SysTree, subjects: Iterable[Subject]) -> list[Bar]:
    """What to read of the functions that may have an AFU, and that VFIO has."""
    bars = {}
    for subject in subjects:
        fact = tree.facts(subject)
        ids, subsystem = f"{fact('vendorID')}:{fact('deviceID')}", str(fact("subsystemID"))
        if is_ofs(ids, subsystem) and "vfio" in str(fact("kernelDriver")):
            bars[subject.address] = tree.bar(subject)
    return list(bars.values())


def _read(tree: SysTree, named: _Named, afu_id: Answer | None, *, is_held: bool) -> _Read:
    """Read a device: attributes, whether it is of the type after all, and nodes.

    A container that has it, by this type, can start again although its AFU is unknown now.
    """
    of, subject = named.of, named.subject
    fact = tree.facts(subject)
    values: dict[str, Value | Problem] = {"type": of.name}
    if afu_id is not None:
        values[AFU_ID] = afu_id
    for attribute in of.spec.attributes:
        reading = tree.attribute(subject, attribute.file)
        values[attribute.name] = attribute_value(attribute, reading)
    for name in {"numaNode", *PUBLISHED, *of.spec.used}:
        value = fact(name)
        if value is not None:
            values[name] = value

    def known(name: str) -> Value | None:
        value = values.get(name) if name in values else fact(name)
        return None if isinstance(value, Problem) else value

    wrong = mismatch(of.spec.match, known)
    unknown = (afu_id,) if wrong is not None and isinstance(afu_id, Problem) else ()
    if wrong is not None and not (unknown and is_held):
        return unknown[0] if unknown else wrong
    if of.spec.is_vfio:
        return Sighting(named.id, subject.name, values, (), problems=unknown)
    nodes = [(source, _nodes(tree, subject, source)) for source in of.spec.sources]
    place = _place_of(subject)
    claims = frozenset({place}) if place else frozenset[str]()
    addresses = (subject.address,) if subject.address else ()
    return Sighting(named.id, subject.name, values, nodes, addresses, claims, unknown)


def _nodes(tree: SysTree, subject: Subject, source: NodeSource) -> list[DeviceNode | Problem]:
    if source.own:
        return [_checked(tree.own_node(subject), source)]
    nodes = tree.nodes_of_class(subject, source.class_ or "")
    return [_checked(node, source) for name, node in nodes if source.has_kind(name)]


def _checked(node: FoundNode, source: NodeSource) -> DeviceNode | Problem:
    return check_node(node, permissions=source.permissions, is_vfio=source.vfio)


def _devices(
    tree: SysTree, reads: Sequence[tuple[_Named, _Read]], previous: Sequence[Device]
) -> Iterator[Device]:
    groups: dict[tuple[str, str], list[tuple[_Named, Sighting | Problem]]] = {}
    matched = {named.subject.place for named, read in reads if isinstance(read, Sighting)}
    for named, read in reads:
        of, subject = named.of, named.subject
        if isinstance(read, Mismatch):
            if read.is_near and subject.place not in matched:
                problem = Problem(NOT_MATCHED, read.message)
                yield not_offered(of, named.id, subject.name, problem)
        elif of.spec.is_vfio:
            group = _group(tree, subject)
            groups.setdefault((of.name, group or named.id), []).append((named, read))
        elif isinstance(read, Problem):
            known = [each for each in previous if _is_same(each, named)]
            yield from unhealthy(known, read) or (not_offered(of, named.id, subject.name, read),)
        else:
            yield from make_devices(of, read)
    for members in groups.values():
        yield _group_device(tree, members, previous)


def _not_held(device: Device, held: Collection[tuple[str, str]]) -> Device:
    """Unhealthy if a container has it as another resource, which the kubelet counts by itself."""
    others = sorted(of for of, key in held if key == device.id and of != device.resource)
    if not (device.resource and others):
        return device
    problem = Problem(HELD, f"a container has {device.id} as {listing(others)}")
    return replace(device, healthy=False, reasons=(*device.reasons, problem))


def _group(tree: SysTree, subject: Subject) -> str:
    return str(tree.facts(subject)("iommuGroup") or "")


def _is_same(device: Device, named: _Named) -> bool:
    """Whether a device offered before is the named one, or a replica of it."""
    return device.type == named.of.name and device.card == named.subject.name


def _group_device(
    tree: SysTree, members: list[tuple[_Named, Sighting | Problem]], previous: Sequence[Device]
) -> Device:
    """The device that is an IOMMU group; one that can't be had was offered before, or is not."""
    (first, _), of = members[0], members[0][0].of
    group = _group(tree, first.subject)
    matched = tuple(named.subject.address for named, _ in members)
    functions = [_member(tree, each) for each in tree.groups.get(group, ())]
    hung = next((read for _, read in members if isinstance(read, Problem)), None)
    problem = hung or group_problem(
        group, tree.group_name(group) if group else "", functions, matched
    )
    known = [each for each in previous if _is_same(each, first)]
    if problem is not None:
        (device,) = unhealthy(known, problem) or (
            not_offered(of, first.id, first.subject.name, problem),
        )
        return device
    reads = [read for _, read in members if isinstance(read, Sighting)]
    values = [read.values for read in reads]
    unknown = (each for read in reads for each in read.problems)
    (source,) = of.spec.sources
    others = frozenset(each.address for each in functions if not each.is_bridge)
    seen = Sighting(
        first.id,
        first.subject.name,
        values[0],
        [(source, [_checked(each, source) for each in tree.vfio_nodes(group)])],
        matched,
        others | frozenset(matched),
        (*unknown, *(each for one in values[1:] for each in health_problems(of, one))),
    )
    (device,) = make_devices(of, seen)
    return device


def _member(tree: SysTree, subject: Subject) -> GroupMember:
    fact = tree.facts(subject)
    pci_class, driver = str(fact("pciClass") or ""), str(fact("kernelDriver") or "")
    return GroupMember(subject.address, pci_class, driver)
