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
        self.entries: Entries = {}
        self.changed: set[str] = set()
        self.listed = False
        self._kind = kind
        self._on_change = on_change
        self._incoming: Entries = {}
        self._new: set[str] = set()

    def listing(self) -> "Store":
        """Begin to collect a list; nothing changes before `finish`."""
        self._incoming, self._new = {}, set()
        return self

    def add(self, item: Item) -> None:
        """Add an object of the list; one that is known already stays the same object."""
        entry = self._read(item)
        known = self.entries.get(entry.namespace, {}).get(entry.name)
        if known is None or known != entry:
            self._new.add(entry.namespace)
            known = entry
        self._incoming.setdefault(entry.namespace, {})[entry.name] = known

    async def finish(self, unreadable: int) -> None:
        """Replace all objects by those that were added."""
        if unreadable:
            log.warning("objects without a name or not in JSON are ignored", number=unreadable)
        before, self.entries, self.listed = self.entries, self._incoming, True
        gone = {name for name in before if before[name].keys() - self.entries.get(name, {})}
        log.debug("listed", kind=self._kind, namespaces_changed=len(self._new | gone))
        self._mark(self._new | gone)

    def upsert(self, item: Item) -> None:
        """Store an object that is new or has changed."""
        entry = self._read(item)
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

    def _read(self, item: Item) -> Entry:
        """Read an object, or why it can't be used."""
        namespace, name = item.metadata.namespace, item.metadata.name
        annotations = _decoded(item.metadata.annotations)
        metadata = {"namespace": namespace, "name": name, "annotations": annotations}
        obj = {"apiVersion": API_VERSION, "kind": self._kind, "metadata": metadata}
        try:
            return parse(obj | {"spec": _decoded(item.spec)})
        except InvalidMapping as error:
            return Rejected(self._kind, namespace, name, str(error))

    def _mark(self, changed: set[str]) -> None:
        self.changed |= changed
        self._on_change()


def _decoded(raw: msgspec.Raw) -> object:
    try:
        return _ANY.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


_ANY: Final = msgspec.json.Decoder()


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
            log.warning("mapping can't be used", reason=problem)
