"""Mappings from the API server: both kinds of all namespaces, in one index that is replaced whole.

A reflector for each kind fills one `MappingTable`. An index is built soon after a change. During
constant changes, building indexes takes at most a share of the event loop's time. An index is
published only when both kinds have been listed, since one kind alone could admit names that clash
with the other. After that the latest index is used, however long the API server is away; `age`
shows for how long.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec
import structlog

from services import names
from services.kube.client import ClusterClient
from services.kube.connection import Connection
from services.kube.list_watch import Item, WatchTimeouts
from services.kube.reflector import Reflector
from services.mappings.index import EMPTY_INDEX, MappingIndex, MappingTable
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
BATCH: Final = 1024
"""Changes that are applied to the table before other tasks run."""

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
        self._connect = connect
        self._connection: Connection | None = None
        self._pace = pace or WatchTimeouts()
        self._interval = interval
        self._timing = timing or Timing()
        self._begun = self._timing.clock()
        self._table = MappingTable()
        self._problem_log = ProblemLog(self._timing.clock)
        self._changed = asyncio.Event()
        self._stores = {kind: _Store(kind, self._table, self._changed.set) for kind in PATHS}
        self._reflectors: list[Reflector] = []

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
        contacts = [reflector.last_seen for reflector in self._reflectors]
        return self._timing.clock() - min(contacts, default=self._begun)

    @property
    def error(self) -> str:
        """Why the mappings aren't being updated now; empty if they are."""
        return next((each.error for each in self._reflectors if each.error), "")

    @property
    def watch_failures(self) -> Mapping[str, int]:
        """How many lists and watches of each kind have failed."""
        if not self._reflectors:
            return dict.fromkeys(PATHS, 0)
        failures = (each.failures for each in self._reflectors)
        return dict(zip(PATHS, failures, strict=True))

    @property
    def watching(self) -> bool:
        """Whether both kinds are being watched right now."""
        return bool(self._reflectors) and all(each.watching for each in self._reflectors)

    def load(self) -> None:
        """Create the client at the start; nothing is requested yet.

        Raises:
            ClusterError: No API server is configured, or the credentials can't be used.
        """
        self._connection = Connection(self._connect)

    async def follow(self) -> NoReturn:
        """Keep the index up to date until cancelled, whatever errors occur.

        Raises:
            ClusterError: As `load`, if that wasn't called before.
        """
        connection = self._connection or Connection(self._connect)
        self._reflectors = [
            Reflector(
                PATHS[kind],
                connection,
                store,
                timeouts=self._pace,
                clock=self._timing.clock,
                sleep=self._timing.sleep,
                jitter=self._timing.jitter,
            )
            for kind, store in self._stores.items()
        ]
        try:
            async with asyncio.TaskGroup() as tasks:
                for reflector in self._reflectors:
                    tasks.create_task(reflector.watch_forever())
                await self._publish()
        finally:
            await connection.aclose()

    async def _publish(self) -> NoReturn:
        """Build an index after changes, at a bounded rate."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            begun = time.thread_time()  # not the time of other processes
            if all(store.settled for store in self._stores.values()):
                self._swap(self._table.snapshot())
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


class _Store:
    """The objects of one kind, in the table of both kinds."""

    def __init__(self, kind: str, table: MappingTable, on_change: Callable[[], None]) -> None:
        self.settled = False
        """Whether the table holds a complete list of the kind."""
        self._kind = kind
        self._table = table
        self._on_change = on_change

    def listing(self) -> "_Listing":
        """Begin to collect a list."""
        return _Listing(self)

    def upsert(self, item: Item) -> None:
        """Store an object that is new or has changed."""
        entry = self.read(item)
        if self.is_new(entry):
            self._table.upsert(entry)
            self._on_change()

    def remove(self, item: Item) -> None:
        """Forget an object."""
        self._table.remove(self._kind, item.metadata.namespace, item.metadata.name)
        self._on_change()

    def read(self, item: Item) -> Entry:
        """Read an object, or why it can't be used."""
        namespace, name = item.metadata.namespace, item.metadata.name
        obj = {
            "apiVersion": API_VERSION,
            "kind": self._kind,
            "metadata": {
                "namespace": namespace,
                "name": name,
                "annotations": _annotations(item),
            },
            "spec": _spec(item),
        }
        try:
            return parse(obj)
        except InvalidMapping as error:
            return Rejected(self._kind, namespace, name, str(error))

    def is_new(self, entry: Entry) -> bool:
        """Whether an object differs from its entry in the table."""
        return entry != self._table.entry(self._kind, entry.namespace, entry.name)

    async def replace(self, changes: list[Entry], listed: set[tuple[str, str]]) -> None:
        """Replace all objects by a list; other tasks run in between.

        Args:
            changes: the objects that are new or have changed.
            listed: namespace and name of all objects.
        """
        self.settled = False
        for number, entry in enumerate(changes, 1):
            self._table.upsert(entry)
            if number % BATCH == 0:
                await asyncio.sleep(0)
        gone = [key for key in self._table.keys(self._kind) if key not in listed]
        for namespace, name in gone:
            self._table.remove(self._kind, namespace, name)
        log.debug("listed", kind=self._kind, changed=len(changes), gone=len(gone))
        self.settled = True
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

    def __init__(self, store: _Store) -> None:
        self._store = store
        self._changes: list[Entry] = []
        self._listed: set[tuple[str, str]] = set()

    def add(self, item: Item) -> None:
        """Add an object of the list."""
        entry = self._store.read(item)
        self._listed.add((entry.namespace, entry.name))
        if self._store.is_new(entry):
            self._changes.append(entry)

    async def finish(self, unreadable: int) -> None:
        """Replace all objects by those that were added."""
        if unreadable:
            log.warning("objects without a name or not in JSON are ignored", number=unreadable)
        await self._store.replace(self._changes, self._listed)


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
