"""Mappings as they come and go one by one, and an index of them at any moment.

`build_index` makes an index of objects that are all there at once. A `MappingTable` is for a source
that tells of one object at a time: `put` and `remove` change what is there, `snapshot` gives the
index, which is what `build_index` would make of the same objects. Its cost is that of what has
changed since the last one, not that of what is there: maps are shared shard by shard.

What serves is kept once, in the index itself. Beside it stands only what doesn't serve: objects
that are no good, and those of a name that both kinds have, which serve again once one of them goes.
"""

import collections.abc
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from services.mappings.model import (
    ACCELERATOR_FUNCTION,
    EMPTY_INDEX,
    FPGA_REGION,
    KINDS,
    Mapping,
    MappingIndex,
    Mode,
    NamespaceMappings,
    Rejected,
    clash,
    with_mode,
)
from services.mappings.sharded import Draft, ShardedMap

Entry: TypeAlias = Mapping | Rejected
"""What an object is: a mapping, or none and why."""

_Group: TypeAlias = tuple[Mapping, ...] | ShardedMap[str, Mapping]
"""The mappings to one resource: a tuple of a few, or a map by name of many."""

_AF: Final = Mode.AF
_FEW: Final = 32
_OPEN: Final = 256
"""Namespaces that are being changed at the same time before their changes are gathered in."""


class MappingTable:
    """The mappings of all namespaces, as far as a source has told of them."""

    def __init__(self) -> None:
        self._index = EMPTY_INDEX
        self._namespaces: dict[str, _Maps] = {}
        self._open: dict[str, _Changes] = {}
        self._ready: dict[str, NamespaceMappings] = {}
        self._tally = _Tally()

    @property
    def counts(self) -> collections.abc.Mapping[str, int]:
        """How many mappings of each kind serve."""
        return self._tally.served

    @property
    def rejected(self) -> int:
        """How many names have an object that doesn't serve."""
        return self._tally.rejected

    def entry(self, kind: str, namespace: str, name: str) -> Entry | None:
        """Return what the last `put` said of an object; None if there is none."""
        changes = self._open.get(namespace)
        if changes is not None:
            return changes.entry(kind, name)
        maps = self._namespaces.get(namespace)
        return maps.entry(kind, name) if maps is not None else None

    def reason(self, namespace: str, name: str) -> str | None:
        """Return why an object of a name doesn't serve; None if all of them do."""
        changes = self._open.get(namespace)
        if changes is not None:
            return changes.reason(name)
        maps = self._namespaces.get(namespace)
        return maps.reasons.get(name) if maps is not None else None

    def put(self, entry: Entry) -> None:
        """Take an object that is new, or has changed."""
        self._changes(entry.namespace).set(entry.kind, entry.name, entry)

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Forget an object; nothing happens if there is none."""
        if self.entry(kind, namespace, name) is not None:
            self._changes(namespace).set(kind, name, None)

    def snapshot(self) -> MappingIndex:
        """Return the index of what there is."""
        self._gather()
        if self._ready:
            self._index = self._index.with_namespaces(self._ready.values())
            self._ready.clear()
        return self._index

    def keys(self, kind: str) -> Iterator[tuple[str, str]]:
        """Go through namespace and name of the objects of a kind.

        Others may be put and removed meanwhile, those of the kind may not.
        """
        self._gather()
        for namespace, maps in list(self._namespaces.items()):
            yield from ((namespace, name) for name in maps.names(kind))

    def _changes(self, namespace: str) -> "_Changes":
        changes = self._open.get(namespace)
        if changes is None:
            if len(self._open) >= _OPEN:
                self._gather()
            maps = self._namespaces.get(namespace, _NO_MAPS)
            changes = self._open[namespace] = _Changes(maps, self._tally)
        return changes

    def _gather(self) -> None:
        for namespace, changes in self._open.items():
            maps = self._namespaces[namespace] = changes.freeze()
            if maps.is_empty:
                del self._namespaces[namespace]
            self._ready[namespace] = maps.mappings(namespace)
        self._open.clear()


@dataclass(slots=True)
class _Tally:
    """Counts over all namespaces."""

    served: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class _Maps:
    """What one namespace maps, as `NamespaceMappings` has it, and what doesn't serve.

    Attributes:
        groups: the mappings to each resource.
        pairs: how many mappings have each pair of ids.
        idle: by kind and name, the objects that don't serve.
    """

    by_name: ShardedMap[str, Mapping] = field(default_factory=ShardedMap)
    groups: ShardedMap[str, _Group] = field(default_factory=ShardedMap)
    pairs: ShardedMap[tuple[str, str], int] = field(default_factory=ShardedMap)
    reasons: ShardedMap[str, str] = field(default_factory=ShardedMap)
    region_modes: ShardedMap[str, frozenset[Mode]] = field(default_factory=ShardedMap)
    idle: ShardedMap[tuple[str, str], Entry] = field(default_factory=ShardedMap)

    @property
    def is_empty(self) -> bool:
        return not self.by_name and not self.idle

    def entry(self, kind: str, name: str) -> Entry | None:
        serving = self.by_name.get(name)
        if serving is not None and serving.kind == kind:
            return serving
        return self.idle.get((kind, name))

    def names(self, kind: str) -> Iterator[str]:
        yield from (mapping.name for mapping in self.by_name.each_value() if mapping.kind == kind)
        yield from (name for its_kind, name in self.idle if its_kind == kind)

    def mappings(self, namespace: str) -> NamespaceMappings:
        return NamespaceMappings(
            namespace,
            by_name=self.by_name,
            by_resource=_ByResource(self.groups),
            pairs=self.pairs.keys(),
            rejected=self.reasons,
            region_modes=self.region_modes,
            sharers=self.pairs,
        )


_NO_MAPS: Final = _Maps()


class _ByResource(collections.abc.Mapping[str, Collection[Mapping]]):
    """Groups as collections of mappings; of many, only those that are looked at are touched."""

    __slots__ = ("_groups",)

    def __init__(self, groups: ShardedMap[str, _Group]) -> None:
        self._groups = groups

    def __getitem__(self, resource: str) -> Collection[Mapping]:
        group = self._groups[resource]
        return group if isinstance(group, tuple) else group.values()

    def __contains__(self, resource: object) -> bool:
        return resource in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)


class _Changes:
    """One namespace while it is being changed."""

    __slots__ = ("_by_name", "_groups", "_idle", "_modes", "_pairs", "_reasons", "_tally")

    def __init__(self, maps: _Maps, tally: _Tally) -> None:
        self._by_name = maps.by_name.draft()
        self._groups = _Groups(maps.groups)
        self._pairs = maps.pairs.draft()
        self._reasons = maps.reasons.draft()
        self._modes = maps.region_modes.draft()
        self._idle = maps.idle.draft()
        self._tally = tally

    def entry(self, kind: str, name: str) -> Entry | None:
        serving = self._by_name.get(name)
        if serving is not None and serving.kind == kind:
            return serving
        return self._idle.get((kind, name))

    def reason(self, name: str) -> str | None:
        return self._reasons.get(name)

    def set(self, kind: str, name: str, entry: Entry | None) -> None:
        """Say what an object is now, None for gone, and decide anew what serves by its name."""
        before = self._by_name.get(name)
        if isinstance(entry, Mapping) and not self._idle and (not before or before.kind == kind):
            self._serve(before, entry)
            return
        entries = {each: self.entry(each, name) for each in KINDS}
        entries[kind] = entry
        serving, reason = _judge(entries[ACCELERATOR_FUNCTION], entries[FPGA_REGION])
        for each, known in entries.items():
            if known is None or known is serving:
                self._idle.discard((each, name))
            else:
                self._idle[each, name] = known
        self._serve(before, serving)
        self._explain(name, reason)

    def freeze(self) -> _Maps:
        """Return the namespace as it is now; not to be changed any more."""
        groups = self._groups.freeze()
        for resource, mode in self._groups.left:
            self._settle_modes(groups, resource, mode)
        return _Maps(
            self._by_name.freeze(),
            groups,
            self._pairs.freeze(),
            self._reasons.freeze(),
            self._modes.freeze(),
            self._idle.freeze(),
        )

    def _serve(self, before: Mapping | None, now: Mapping | None) -> None:
        """Replace what serves by a name."""
        if before is now:
            return
        if before is not None:
            self._withdraw(before)
        if now is not None:
            self._offer(now)

    def _offer(self, mapping: Mapping) -> None:
        self._by_name[mapping.name] = mapping
        self._groups.add(mapping)
        self._tally.served[mapping.kind] += 1
        if mapping.mode is not _AF:
            known = self._modes.get(mapping.resource)
            modes = with_mode(known, mapping.mode)
            if modes is not known:
                self._modes[mapping.resource] = modes
        if (pair := mapping.pair) is not None:
            self._pairs[pair] = (self._pairs.get(pair) or 0) + 1

    def _withdraw(self, mapping: Mapping) -> None:
        self._by_name.discard(mapping.name)
        self._groups.remove(mapping)
        self._tally.served[mapping.kind] -= 1
        if (pair := mapping.pair) is not None:
            others = (self._pairs.get(pair) or 0) - 1
            if others > 0:
                self._pairs[pair] = others
            else:
                self._pairs.discard(pair)

    def _explain(self, name: str, reason: str | None) -> None:
        """Keep why an object of a name doesn't serve."""
        known = self._reasons.get(name)
        if reason is None and known is not None:
            self._reasons.discard(name)
            self._tally.rejected -= 1
        elif reason is not None:
            self._reasons[name] = reason
            self._tally.rejected += known is None

    def _settle_modes(self, groups: ShardedMap[str, _Group], resource: str, mode: Mode) -> None:
        """Take back a mode of a region if no mapping has it any more."""
        group = groups.get(resource, ())
        members = group if isinstance(group, tuple) else group.each_value()
        if any(mapping.mode is mode for mapping in members):
            return
        rest = (self._modes.get(resource) or frozenset()) - {mode}
        self._modes.discard(resource)
        for other in rest:
            self._modes[resource] = with_mode(None, other)


class _Groups:
    """The mappings to each resource of a namespace while they are being changed.

    Attributes:
        left: each region and mode that a mapping has left.
    """

    __slots__ = ("_groups", "_many", "left")

    def __init__(self, groups: ShardedMap[str, _Group]) -> None:
        self._groups = groups.draft()
        self._many: dict[str, Draft[str, Mapping]] = {}
        self.left: set[tuple[str, Mode]] = set()

    def add(self, mapping: Mapping) -> None:
        group = self._groups.get(mapping.resource) or ()
        if isinstance(group, tuple) and len(group) < _FEW:
            self._groups[mapping.resource] = (*group, mapping)
        else:
            self._draft(mapping.resource, group)[mapping.name] = mapping

    def remove(self, mapping: Mapping) -> None:
        if mapping.mode is not _AF:
            self.left.add((mapping.resource, mapping.mode))
        group = self._groups.get(mapping.resource) or ()
        if not isinstance(group, tuple):
            self._draft(mapping.resource, group).discard(mapping.name)
        elif rest := tuple(each for each in group if each.name != mapping.name):
            self._groups[mapping.resource] = rest
        else:
            self._groups.discard(mapping.resource)

    def freeze(self) -> ShardedMap[str, _Group]:
        for resource, draft in self._many.items():
            group = draft.freeze()
            if len(group) > _FEW // 2:
                self._groups[resource] = group
            elif group:
                self._groups[resource] = tuple(group.each_value())
            else:
                self._groups.discard(resource)
        return self._groups.freeze()

    def _draft(self, resource: str, group: _Group) -> Draft[str, Mapping]:
        """Return the draft of a group of many; the group itself stands in for it until `freeze`."""
        draft = self._many.get(resource)
        if draft is None:
            if isinstance(group, tuple):
                group = ShardedMap(({each.name: each for each in group},), len(group))
                self._groups[resource] = group
            draft = self._many[resource] = group.draft()
        return draft


def _judge(function: Entry | None, region: Entry | None) -> tuple[Mapping | None, str | None]:
    """Return which of two objects of one name serves, and why another one doesn't."""
    reason = None
    if isinstance(region, Rejected):
        reason = region.reason
        region = None
    if isinstance(function, Rejected):
        reason = function.reason
        function = None
    if function is not None and region is not None:
        return None, clash(function.namespace, function.name)
    return function or region, reason
