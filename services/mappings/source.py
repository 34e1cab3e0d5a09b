"""Mappings from the API server: both kinds of all namespaces, in one index that is replaced whole.

A reflector for each kind fills one `Store`. The namespaces in which something has changed are
indexed again soon after. During constant changes, that takes at most a share of the event loop's
time. An index is published only when both kinds have been listed, since one kind alone could admit
names that clash with the other. After that the latest index is used, however long the API server is
away; `age` shows for how long.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

import msgspec
import structlog

from services import names
from services.kube.client import ClusterClient
from services.kube.connection import Connection
from services.kube.list_watch import Item, WatchTimeouts
from services.kube.reflector import Reflector
from services.mappings.index import EMPTY_INDEX, MappingIndex, build_namespace
from services.mappings.model import (
    ACCELERATOR_FUNCTION,
    API_VERSION,
    DEPRECATED,
    FPGA_REGION,
    Entry,
    Rejected,
    parse,
)
from services.process.errors import InvalidMapping

PATHS: Final = {
    ACCELERATOR_FUNCTION: f"/apis/{names.DOMAIN}/v2/acceleratorfunctions",
    FPGA_REGION: f"/apis/{names.DOMAIN}/v2/fpgaregions",
}
INTERVAL: Final = 0.01
"""Seconds from one index to the next, at least."""
MAX_SHARE: Final = 0.05
"""The share of the event loop's time that building indexes may take."""

log = structlog.get_logger(room="mappings")


@dataclass(frozen=True, slots=True)
class Timing:
    """The sources of time and randomness, which tests replace."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    """Returns numbers from 0 to 1."""


class ApiServerSource:
    """The latest mappings of a cluster.

    Args:
        connect: creates a client of the API server, also after credentials have changed.
        pace: the time-outs of watches.
        interval: seconds from one index to the next, at least.
        timing: the sources of time and randomness.

    Raises:
        ClusterError: No API server is configured, or the credentials can't be used.
    """

    def __init__(
        self,
        connect: Callable[[], ClusterClient],
        *,
        pace: WatchTimeouts | None = None,
        interval: float = INTERVAL,
        timing: Timing | None = None,
    ) -> None:
        self.index: MappingIndex = EMPTY_INDEX
        """The mappings in use; replaced as a whole, never changed."""
        self.loaded = False
        """Whether both kinds have been listed."""
        self.stores: dict[str, Store] = {}
        self._connection = Connection(connect)
        self._interval = interval
        timing = timing or Timing()
        self._clock = timing.clock
        self._problem_log = ProblemLog(self._clock)
        self._changed = asyncio.Event()
        self._reflectors: dict[str, Reflector] = {}
        for kind, path in PATHS.items():
            self.stores[kind] = Store(kind, self._changed.set)
            self._reflectors[kind] = Reflector(
                path,
                self._connection,
                self.stores[kind],
                timeouts=pace or WatchTimeouts(),
                clock=timing.clock,
                sleep=timing.sleep,
                jitter=timing.jitter,
            )

    @property
    def counts(self) -> Mapping[str, int]:
        """How many mappings of each kind are served."""
        return self.index.counts

    @property
    def rejected(self) -> int:
        """How many names have an object that can't be used."""
        return self.index.rejected

    @property
    def age(self) -> float:
        """Seconds since both kinds were last known to be up to date."""
        return self._clock() - min(each.last_seen for each in self._reflectors.values())

    @property
    def error(self) -> str:
        """Why the mappings aren't being updated now; empty if they are."""
        return next((each.error for each in self._reflectors.values() if each.error), "")

    @property
    def watch_failures(self) -> Mapping[str, int]:
        """How many lists and watches of each kind have failed."""
        return {kind: each.failures for kind, each in self._reflectors.items()}

    @property
    def watching(self) -> bool:
        """Whether both kinds are being watched right now."""
        return all(each.watching for each in self._reflectors.values())

    async def follow(self) -> NoReturn:
        """Keep the index up to date until cancelled, whatever errors occur."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for reflector in self._reflectors.values():
                    tasks.create_task(reflector.watch_forever())
                await self._publish()
        finally:
            await self._connection.aclose()

    async def _publish(self) -> NoReturn:
        """Build an index after changes, at a bounded rate."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            begun = time.thread_time()  # not the time of other processes
            if all(store.listed for store in self.stores.values()):
                self._swap(indexed(self.index, list(self.stores.values())))
            cost = time.thread_time() - begun
            await asyncio.sleep(max(self._interval, cost / MAX_SHARE))

    def _swap(self, index: MappingIndex) -> None:
        before, self.index = self.index, index
        if not self.loaded:
            self.loaded = True
            log.info(
                "mappings loaded",
                mappings=len(index),
                namespaces=len(index.namespaces),
                problems=index.rejected,
            )
        for reason in index.new_reasons(before):
            self._problem_log.log(reason)


def indexed(before: MappingIndex, stores: list["Store"]) -> MappingIndex:
    """Return an index of all objects; namespaces that have not changed are taken from `before`."""
    changed = set[str]().union(*(store.changed for store in stores))
    if not changed:
        return before
    for store in stores:
        store.changed.clear()
    return before.with_namespaces(
        build_namespace(
            name, [entry for each in stores for entry in each.entries.get(name, {}).values()]
        )
        for name in changed
    )


Entries: TypeAlias = dict[str, dict[str, Entry]]
"""By namespace and name."""


class Store:
    """The objects of one kind; a list replaces them all at once.

    Attributes:
        entries: What is known.
        changed: The namespaces with changes that no index has yet.
        listed: Whether there was a complete list.
    """

    def __init__(self, kind: str, on_change: Callable[[], None]) -> None:
        self.kind = kind
        self.entries: Entries = {}
        self.changed: set[str] = set()
        self.listed = False
        self._on_change = on_change

    def listing(self) -> "_Listing":
        """Begin to collect a list."""
        return _Listing(self)

    def upsert(self, item: Item) -> None:
        """Store an object that is new or has changed."""
        entry = self.read(item)
        known = self.entries.setdefault(entry.namespace, {})
        if known.get(entry.name) != entry:
            known[entry.name] = entry
            self._mark({entry.namespace})

    def remove(self, item: Item) -> None:
        """Forget an object."""
        namespace, name = item.metadata.namespace, item.metadata.name
        known = self.entries.get(namespace, {})
        if known.pop(name, None) is not None:
            if not known:
                del self.entries[namespace]
            self._mark({namespace})

    def read(self, item: Item) -> Entry:
        """Read an object, or why it can't be used."""
        namespace, name = item.metadata.namespace, item.metadata.name
        annotations = _annotations(item)
        metadata = {"namespace": namespace, "name": name, "annotations": annotations}
        obj = {"apiVersion": API_VERSION, "kind": self.kind, "metadata": metadata}
        try:
            return parse(obj | {"spec": _spec(item)})
        except InvalidMapping as error:
            return Rejected(self.kind, namespace, name, str(error))

    def replace(self, entries: Entries, changed: set[str]) -> None:
        """Replace all objects by a list; `changed` are the namespaces with other objects."""
        gone = {
            name for name, known in self.entries.items() if known.keys() - entries.get(name, {})
        }
        self.entries, self.listed = entries, True
        self._mark(changed | gone)

    def _mark(self, changed: set[str]) -> None:
        self.changed |= changed
        self._on_change()


def _spec(item: Item) -> object:
    try:
        return _ANY.decode(item.spec)
    except _UNREADABLE:
        return None


def _annotations(item: Item) -> dict[str, str] | None:
    """Return the one annotation that matters; the others may be long."""
    try:
        found = _ANNOTATIONS.decode(item.metadata.annotations)
    except _UNREADABLE:
        return None
    return None if found is None or found.note is None else {DEPRECATED: found.note}


class _Annotations(msgspec.Struct, gc=False):
    note: str | None = msgspec.field(name=DEPRECATED, default=None)


_ANY: Final = msgspec.json.Decoder()
_ANNOTATIONS: Final = msgspec.json.Decoder(_Annotations | None)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class _Listing:
    """A list that is being collected; nothing changes before `finish`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: Entries = {}
        self._changed: set[str] = set()

    def add(self, item: Item) -> None:
        """Add an object of the list; one that is known already stays the same object."""
        entry = self._store.read(item)
        known = self._store.entries.get(entry.namespace, {}).get(entry.name)
        if known != entry:
            self._changed.add(entry.namespace)
        same = entry if known is None or known != entry else known
        self._entries.setdefault(entry.namespace, {})[entry.name] = same

    async def finish(self, unreadable: int) -> None:
        """Replace all objects by those that were added."""
        if unreadable:
            log.warning("objects without a name or not in JSON are ignored", number=unreadable)
        log.debug("listed", kind=self._store.kind, changed=len(self._changed))
        self._store.replace(self._entries, self._changed)


class ProblemLog:
    """Logs the problems of mappings at a bounded rate.

    Args:
        clock: a monotonic clock, in seconds.
        most: how many are logged in `window` seconds; of the others only the number is logged.
    """

    def __init__(
        self, clock: Callable[[], float], *, most: int = 100, window: float = 60.0
    ) -> None:
        self._clock = clock
        self._most = most
        self._window = window
        self._until = clock() + window
        self._count = 0

    def log(self, problem: str) -> None:
        """Log a new problem."""
        now = self._clock()
        if now >= self._until:
            self._until = now + self._window
            if self._count > self._most:
                log.warning("more mappings can't be used", number=self._count - self._most)
            self._count = 0
        self._count += 1
        if self._count <= self._most:
            log.warning("mapping can't be used", problem=problem)
