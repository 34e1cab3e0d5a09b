"""Which mappings are served: plain dictionaries for each namespace, in an index that never changes.

`build_namespace` decides which objects of a namespace are served. For the others it keeps the
reason, which goes into the refusal of a pod that requests them.
"""

import collections.abc
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from services.mappings.kinds import ACCELERATOR, ACCELERATOR_FUNCTION, FPGA_REGION, TABLE, Family
from services.mappings.model import (
    Function,
    Mapping,
    MappingEntry,
    Mode,
    Rejected,
    Resolution,
    label,
)

_SHARED_MODES: Final[dict[frozenset[Mode], frozenset[Mode]]] = {}
"""One set for all resources of the same modes."""


@dataclass(frozen=True, slots=True)
class NameTable:
    """The names of one family in one namespace."""

    namespace: str
    by_name: collections.abc.Mapping[str, Mapping] = field(default_factory=dict)
    """Each logical name and its mapping."""
    rejected: collections.abc.Mapping[str, str] = field(default_factory=dict)
    """Each name with an object that can't be used, and the reason. A name that is in `by_name`
    too is served nevertheless."""

    def __len__(self) -> int:
        return len(self.by_name)


@dataclass(frozen=True, slots=True)
class NamespaceMappings(NameTable):
    """The mappings of one namespace: names of the family FPGA, and those of accelerators."""

    modes: collections.abc.Mapping[str, frozenset[Mode]] = field(default_factory=dict)
    """Each physical name that mappings resolve to, with their modes."""
    functions: collections.abc.Mapping[Function, Mapping] = field(default_factory=dict)
    """The functions that a container of this namespace may have programmed, each with its first
    mapping."""
    same: collections.abc.Mapping[Resolution, tuple[Mapping, ...]] = field(default_factory=dict)
    """The first two mappings to a thing that aren't deprecated."""
    counts: collections.abc.Mapping[str, int] = field(default_factory=dict)
    """How many mappings of each kind are served."""
    accelerators: NameTable = NameTable("")
    """The names of the family ACCELERATOR."""

    @property
    def tables(self) -> tuple[NameTable, NameTable]:
        """The names of each family."""
        return self, self.accelerators

    def modes_of(self, resource: str) -> frozenset[Mode]:
        """Return the modes of the mappings that resolve to a physical name."""
        return self.modes.get(resource, frozenset())

    def twin_of(self, mapping: Mapping) -> Mapping | None:
        """Return another mapping to the same thing that isn't deprecated, None if there is none."""
        # `same` has no Accelerators: few mean the same to pods, since a selector may differ.
        same = self.same.get(mapping.resolution, ())
        return next((other for other in same if other.name != mapping.name), None)


@dataclass(frozen=True, slots=True)
class MappingIndex:
    """The mappings of all namespaces at one moment; it never changes."""

    _by_namespace: collections.abc.Mapping[str, NamespaceMappings] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many mappings of each kind are served."""
        known = self._by_namespace.values()
        return {kind: sum(mappings.counts.get(kind, 0) for mappings in known) for kind in TABLE}

    @property
    def rejected(self) -> int:
        """How many names have an object that can't be used."""
        known = self._by_namespace.values()
        return sum(len(table.rejected) for mappings in known for table in mappings.tables)

    def namespace(self, name: str) -> NamespaceMappings:
        """Return what a namespace maps; an unknown namespace maps nothing."""
        known = self._by_namespace.get(name)
        if known is None:
            return NamespaceMappings(name, accelerators=NameTable(name))
        return known

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces with a mapping, or with an object that can't be used."""
        return tuple(self._by_namespace)

    @property
    def reasons(self) -> Iterator[str]:
        """Why objects can't be used."""
        for mappings in self._by_namespace.values():
            for table in mappings.tables:
                yield from table.rejected.values()

    def with_namespaces(self, changed: Iterable[NamespaceMappings]) -> "MappingIndex":
        """Return an index that differs in some namespaces and shares all others."""
        updated = dict(self._by_namespace) | {each.namespace: each for each in changed}
        return MappingIndex(
            {
                name: each
                for name, each in updated.items()
                if any(table.by_name or table.rejected for table in each.tables)
            }
        )

    def __len__(self) -> int:
        return sum(self.counts.values())


EMPTY_INDEX: Final = MappingIndex()


def build_namespace(namespace: str, entries: Iterable[MappingEntry]) -> NamespaceMappings:
    """Decide which mappings of one namespace are served, and keep the reasons of the others.

    It takes about 1 ms for 1,000 mappings.
    """
    by_kind: dict[str, dict[str, Mapping]] = {kind: {} for kind in TABLE}
    reasons: dict[Family, dict[str, str]] = {family: {} for family in Family}
    for entry in entries:
        if isinstance(entry, Rejected):
            reasons[entry.family].setdefault(entry.name, entry.reason)
        elif by_kind[entry.kind].setdefault(entry.name, entry) is not entry:  # the first is served
            reasons[entry.family][entry.name] = repeated(entry.kind, namespace, entry.name)
    functions, regions = by_kind[ACCELERATOR_FUNCTION], by_kind[FPGA_REGION]
    # Neither is served: it is undefined which one a pod means.
    for name in functions.keys() & regions.keys():
        reasons[Family.FPGA][name] = clash(namespace, name)
        del functions[name], regions[name]
    accelerators = NameTable(namespace, by_kind[ACCELERATOR], reasons[Family.ACCELERATOR])
    return _index_namespace(namespace, functions | regions, reasons[Family.FPGA], accelerators)


def repeated(kind: str, namespace: str, name: str) -> str:
    """Return the problem of a name that two objects of a kind have."""
    return f"{label(kind, namespace, name)} exists more than once; the first one is used"


def clash(namespace: str, name: str) -> str:
    """Return the problem of a name that both kinds have."""
    function = label(ACCELERATOR_FUNCTION, namespace, name)
    region = label(FPGA_REGION, namespace, name)
    return f"{function} and {region} have the same name, so neither can be used: rename one of them"


def build_index(entries: Iterable[MappingEntry]) -> MappingIndex:
    """Return the index of all objects, by namespace; see `build_namespace`."""
    by_namespace: dict[str, list[MappingEntry]] = {}
    for entry in entries:
        by_namespace.setdefault(entry.namespace, []).append(entry)
    return EMPTY_INDEX.with_namespaces(map(build_namespace, by_namespace, by_namespace.values()))


def _index_namespace(
    namespace: str, by_name: dict[str, Mapping], reasons: dict[str, str], accelerators: NameTable
) -> NamespaceMappings:
    modes: dict[str, frozenset[Mode]] = {}
    functions: dict[Function, Mapping] = {}
    same: dict[Resolution, tuple[Mapping, ...]] = {}
    for mapping in by_name.values():
        resolution = mapping.resolution
        known_modes = modes.get(resolution.resource, frozenset())
        all_modes = known_modes.union(filter(None, (resolution.mode,)))
        modes[resolution.resource] = _SHARED_MODES.setdefault(all_modes, all_modes)
        if (function := resolution.function) is not None:
            functions.setdefault(function, mapping)
        known = same.get(resolution, ())
        if mapping.deprecated is None and len(known) < 2:
            same[resolution] = (*known, mapping)
    return NamespaceMappings(
        namespace,
        by_name,
        reasons,
        modes=modes,
        functions=functions,
        same=same,
        counts=Counter(
            mapping.kind for each in (by_name, accelerators.by_name) for mapping in each.values()
        ),
        accelerators=accelerators,
    )
