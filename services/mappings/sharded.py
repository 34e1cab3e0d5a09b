"""Maps that never change, cheap to make again with a few entries different.

An index of 100 000 mappings is replaced at every change, many times a second, while requests read
it. Copying it would take tens of milliseconds each time. So a `ShardedMap` is cut into small dicts
by the hash of the key: a changed copy shares all of them but those that hold what has changed.
Looking up stays what it is in a dict, plus finding the shard.

`Draft` makes the changed copy. It copies a shard when it is first changed, and changes it in place
from then on, until `freeze` hands all of them over. A draft that changes nothing costs nothing.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

SHARD_ENTRIES: Final = 1024
"""How many entries a shard has on average before there are `_GROWTH` times as many shards."""

_GROWTH: Final = 16
_SHIFT: Final = 20
"""Which bits of a hash choose the shard: not the lowest, by which a dict chooses the slot."""


class ShardedMap(Mapping[K, V]):
    """A map that never changes; `draft` begins a changed copy.

    Args:
        shards: as many dicts as a power of 16; the caller keeps no hand on them.
        count: how many entries they have together.
    """

    __slots__ = ("_count", "_mask", "_shards")

    def __init__(self, shards: tuple[dict[K, V], ...] = ({},), count: int = 0) -> None:
        self._shards = shards
        self._mask = len(shards) - 1
        self._count = count

    def __getitem__(self, key: K) -> V:
        return self._shards[(hash(key) >> _SHIFT) & self._mask][key]

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...

    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        """Return the value of a key, or the default."""
        return self._shards[(hash(key) >> _SHIFT) & self._mask].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._shards[(hash(key) >> _SHIFT) & self._mask]

    def __iter__(self) -> Iterator[K]:
        return itertools.chain.from_iterable(self._shards)

    def __len__(self) -> int:
        return self._count

    def each_value(self) -> Iterator[V]:
        """Return all values; `values` would look up each of them by its key."""
        return itertools.chain.from_iterable(shard.values() for shard in self._shards)

    def draft(self) -> "Draft[K, V]":
        """Begin a changed copy."""
        return Draft(self, self._shards)


class Draft(Generic[K, V]):
    """A map that is being changed; made by `ShardedMap.draft`.

    Args:
        base: the map that it begins as; it isn't changed.
        shards: those of the map.
    """

    __slots__ = ("_count", "_frozen", "_mask", "_own", "_shards")

    def __init__(self, base: ShardedMap[K, V], shards: tuple[dict[K, V], ...]) -> None:
        self._frozen: ShardedMap[K, V] | None = base
        self._shards: tuple[dict[K, V], ...] | list[dict[K, V]] = shards
        self._mask = len(shards) - 1
        self._own: set[int] | None = None
        self._count = len(base)

    def __len__(self) -> int:
        return self._count

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if there is none."""
        return self._shards[(hash(key) >> _SHIFT) & self._mask].get(key)

    def __setitem__(self, key: K, value: V) -> None:
        shard = self._writable(key)
        before = len(shard)
        shard[key] = value
        self._count += len(shard) - before
        if self._count > SHARD_ENTRIES * len(self._shards):
            self._grow()

    def discard(self, key: K) -> None:
        """Remove a key, if it is there."""
        if key in self._shards[(hash(key) >> _SHIFT) & self._mask]:
            del self._writable(key)[key]
            self._count -= 1

    def freeze(self) -> ShardedMap[K, V]:
        """Return the map as it is now; the draft may go on being changed."""
        if self._frozen is None:
            shards = tuple(self._shards)
            self._frozen = ShardedMap(shards, self._count) if self._count else ShardedMap()
            self._shards = shards
        return self._frozen

    def _writable(self, key: K) -> dict[K, V]:
        shards = self._shards
        if isinstance(shards, tuple):
            shards = self._shards = list(shards)
            self._own = set()
            self._frozen = None
        at = (hash(key) >> _SHIFT) & self._mask
        # All are our own once there are more of them than there were.
        if self._own is not None and at not in self._own:
            self._own.add(at)
            shards[at] = shards[at].copy()
        return shards[at]

    def _grow(self) -> None:
        entries = itertools.chain.from_iterable(shard.items() for shard in self._shards)
        self._shards = _cut(entries, len(self._shards) * _GROWTH)
        self._mask = len(self._shards) - 1
        self._own = None


def _cut(entries: Iterable[tuple[K, V]], number: int) -> list[dict[K, V]]:
    shards: list[dict[K, V]] = [{} for _ in range(number)]
    mask = number - 1
    for key, value in entries:
        shards[(hash(key) >> _SHIFT) & mask][key] = value
    return shards
