"""Which mappings serve: plain dictionaries for each namespace, in an index that never changes.

`build_namespace` decides which of a namespace's objects serve. What can't is kept with the reason,
so that a pod that asks for it gets that. `MappingTable` is for a source that reports one object at
a time: when an object changes, its whole namespace is indexed again (about 1 ms for 1,000
mappings), and the new index shares all other namespaces with the one before.
"""

import collections.abc
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, islice
from types import MappingProxyType
from typing import Final

from services.mappings.model import (
    ACCELERATOR_FUNCTION,
    FPGA_REGION,
    KINDS,
    Entry,
    Mapping,
    Mode,
    Rejected,
    label,
)

LOOKED_AT: Final = 64
"""How many mappings to a resource are compared with one of them: there may be many thousands."""

_MODES: Final = {
    modes: modes
    for number in range(1, len(Mode) + 1)
    for modes in map(frozenset, combinations(Mode, number))
}
"""One set for all resources of the same modes."""


@dataclass(frozen=True, slots=True)
class NamespaceMappings:
    """What one namespace maps.

    Attributes:
        namespace: its name.
        by_name: each logical name and its mapping.
        by_resource: each physical name and the mappings that resolve to it.
        modes: each physical name and the modes in which the mappings to it are served.
        sharers: (interface id, AFU id) of each function of mode region, and how many mappings have
            it: what a container of this namespace may have programmed.
        rejected: each name with an object that can't serve, and the reason. A name that is in
            `by_name` as well is served all the same.
        regions: how many of the mappings are FpgaRegions.
    """

    namespace: str
    by_name: collections.abc.Mapping[str, Mapping] = field(default_factory=dict)
    by_resource: collections.abc.Mapping[str, Collection[Mapping]] = field(default_factory=dict)
    modes: collections.abc.Mapping[str, frozenset[Mode]] = field(default_factory=dict)
    sharers: collections.abc.Mapping[tuple[str, str], int] = field(default_factory=dict)
    rejected: collections.abc.Mapping[str, str] = field(default_factory=dict)
    regions: int = 0

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def pairs(self) -> collections.abc.Set[tuple[str, str]]:
        """(interface id, AFU id) of each function of mode region."""
        return self.sharers.keys()

    def modes_of(self, resource: str) -> frozenset[Mode]:
        """Return the modes in which the mappings to a physical name are served."""
        return self.modes.get(resource, frozenset())

    def twin_of(self, mapping: Mapping, *, limit: int | None = LOOKED_AT) -> Mapping | None:
        """Return any mapping that gives another name to the same thing, None if there is none.

        One that is deprecated doesn't count: that is how a name gives way to another.

        Args:
            mapping: of this namespace, or one that could be.
            limit: how many mappings to the resource are looked at; None for all.
        """
        # Most functions of a region have no twin, however many others the region has.
        if (pair := mapping.pair) is not None:
            known = self.by_name.get(mapping.name)
            counted = known is mapping or (known is not None and known.pair == pair)
            if self.sharers.get(pair, 0) <= counted:
                return None
        for other in islice(self.by_resource.get(mapping.resource, ()), limit):
            if other.deprecated is None and other.is_twin_of(mapping):
                return other
        return None


@dataclass(frozen=True, slots=True)
class MappingIndex:
    """The mappings of all namespaces at one moment; it never changes.

    Attributes:
        counts: how many mappings of each kind serve.
        rejected: how many names have an object that can't.
    """

    _by_namespace: collections.abc.Mapping[str, NamespaceMappings] = field(default_factory=dict)
    counts: collections.abc.Mapping[str, int] = field(
        default_factory=lambda: dict.fromkeys(KINDS, 0)
    )
    rejected: int = 0

    def namespace(self, name: str) -> NamespaceMappings:
        """Return what a namespace maps; a namespace that nobody knows maps nothing."""
        known = self._by_namespace.get(name)
        return NamespaceMappings(name) if known is None else known

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that have a mapping, or one that can't serve."""
        return tuple(self._by_namespace)

    def new_reasons(self, before: "MappingIndex") -> Iterator[str]:
        """Yield why names don't serve where that was otherwise in an earlier index."""
        for name, mappings in self._by_namespace.items():
            old = before.namespace(name)
            if old is not mappings:
                for rejected, reason in mappings.rejected.items():
                    if old.rejected.get(rejected) != reason:
                        yield reason

    def with_namespaces(self, changed: Iterable[NamespaceMappings]) -> "MappingIndex":
        """Return an index that differs in some namespaces and shares all others.

        A namespace without any mapping, good or rejected, is left out.
        """
        updated, counts, rejected = dict(self._by_namespace), dict(self.counts), self.rejected
        for mappings in changed:
            before = updated.pop(mappings.namespace, NamespaceMappings(mappings.namespace))
            if mappings.by_name or mappings.rejected:
                updated[mappings.namespace] = mappings
            regions = mappings.regions - before.regions
            counts[FPGA_REGION] += regions
            counts[ACCELERATOR_FUNCTION] += len(mappings) - len(before) - regions
            rejected += len(mappings.rejected) - len(before.rejected)
        return MappingIndex(updated, counts, rejected)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __repr__(self) -> str:
        return f"MappingIndex({len(self)} mappings in {len(self._by_namespace)} namespaces)"


EMPTY_INDEX: Final = MappingIndex()


class MappingTable:
    """The objects of all namespaces, as far as a source has reported them."""

    def __init__(self) -> None:
        self._index = EMPTY_INDEX
        self._entries: dict[str, dict[tuple[str, str], Entry]] = {}
        self._changed: set[str] = set()

    def entry(self, kind: str, namespace: str, name: str) -> Entry | None:
        """Return what is known of an object; None if there is none."""
        return self._entries.get(namespace, {}).get((kind, name))

    def upsert(self, entry: Entry) -> None:
        """Add an object, or replace it."""
        self._entries.setdefault(entry.namespace, {})[entry.kind, entry.name] = entry
        self._changed.add(entry.namespace)

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Forget an object; nothing happens if there is none."""
        entries = self._entries.get(namespace, {})
        if entries.pop((kind, name), None) is not None:
            self._changed.add(namespace)
            if not entries:
                del self._entries[namespace]

    def keys(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield namespace and name of the objects of a kind."""
        for namespace, entries in self._entries.items():
            yield from ((namespace, name) for its_kind, name in entries if its_kind == kind)

    def snapshot(self) -> MappingIndex:
        """Return the index of what there is."""
        if self._changed:
            changed = [self._build(namespace) for namespace in self._changed]
            self._index = self._index.with_namespaces(changed)
            self._changed.clear()
        return self._index

    def _build(self, namespace: str) -> NamespaceMappings:
        entries = self._entries.get(namespace, {}).values()
        rejected = [entry for entry in entries if isinstance(entry, Rejected)]
        rejected.sort(key=lambda entry: KINDS.index(entry.kind))  # of two, the function's counts
        serving = (entry for entry in entries if isinstance(entry, Mapping))
        return build_namespace(namespace, serving, rejected)


def build_namespace(
    namespace: str, mappings: Iterable[Mapping], rejected: Iterable[Rejected] = ()
) -> NamespaceMappings:
    """Decide which mappings of one namespace serve, and keep the reasons of the others.

    Of two objects of one kind and name the first serves. An AcceleratorFunction and an
    FpgaRegion of one name cancel each other out: nobody can tell which one a pod means.
    """
    by_kind: dict[str, dict[str, Mapping]] = {kind: {} for kind in KINDS}
    reasons: dict[str, str] = {}
    for mapping in mappings:
        first = by_kind[mapping.kind].setdefault(mapping.name, mapping)
        if first is not mapping:
            reasons[mapping.name] = repeated(mapping.kind, namespace, mapping.name)
    for refused in rejected:
        reasons.setdefault(refused.name, refused.reason)
    functions, regions = by_kind[ACCELERATOR_FUNCTION], by_kind[FPGA_REGION]
    for name in functions.keys() & regions.keys():
        reasons[name] = clash(namespace, name)
        del functions[name], regions[name]
    return _index_namespace(namespace, functions | regions, reasons, len(regions))


def repeated(kind: str, namespace: str, name: str) -> str:
    """Return what is odd about a name that two objects of a kind have."""
    return f"{label(kind, namespace, name)} is there more than once; the first one counts"


def clash(namespace: str, name: str) -> str:
    """Return why neither of two objects of one name serves."""
    function = label(ACCELERATOR_FUNCTION, namespace, name)
    region = label(FPGA_REGION, namespace, name)
    return f"{function} and {region} have one name, so neither can be used: rename one of them"


def build_index(mappings: Iterable[Mapping], rejected: Iterable[Rejected] = ()) -> MappingIndex:
    """Return the index of all mappings, by namespace; see `build_namespace`."""
    served: dict[str, list[Mapping]] = {}
    refused: dict[str, list[Rejected]] = {}
    for mapping in mappings:
        served.setdefault(mapping.namespace, []).append(mapping)
    for entry in rejected:
        refused.setdefault(entry.namespace, []).append(entry)
    return EMPTY_INDEX.with_namespaces(
        build_namespace(namespace, served.get(namespace, ()), refused.get(namespace, ()))
        for namespace in {**served, **refused}
    )


def _index_namespace(
    namespace: str, by_name: dict[str, Mapping], reasons: dict[str, str], regions: int
) -> NamespaceMappings:
    by_resource: dict[str, list[Mapping]] = {}
    sharers: dict[tuple[str, str], int] = {}
    for mapping in by_name.values():
        by_resource.setdefault(mapping.resource, []).append(mapping)
        if (pair := mapping.pair) is not None:
            sharers[pair] = sharers.get(pair, 0) + 1
    modes = {
        resource: _MODES[frozenset(mapping.mode for mapping in found)]
        for resource, found in by_resource.items()
    }
    return NamespaceMappings(
        namespace,
        MappingProxyType(by_name),
        MappingProxyType({resource: tuple(found) for resource, found in by_resource.items()}),
        MappingProxyType(modes),
        MappingProxyType(sharers),
        MappingProxyType(reasons),
        regions,
    )
