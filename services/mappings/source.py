"""Mappings from the API server: both kinds of all namespaces, as one index that is replaced whole.

A reflector for each kind fills one `MappingTable`. An index is made soon after a change; while
changes come all the time, making indexes takes no more than a share of the event loop's time. An
index is only handed out when both kinds have been listed: half of them would let through what the
other half forbids. From then on the last one serves, however long the API server is away; `age`
tells for how long.
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
"""How much of the event loop's time making indexes may take."""
BATCH: Final = 1024
"""Changes that are made to the table before others get their turn on the event loop."""

log = structlog.get_logger(room="mappings")


@dataclass(frozen=True, slots=True)
class Timing:
    """Where time and randomness come from.

    Attributes:
        clock: seconds, from any beginning.
        sleep: waits for some seconds.
        jitter: gives numbers from 0 to 1.
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


class ApiServerSource:
    """The mappings of a cluster, always the newest that could be had.

    Args:
        connect: makes a client of the API server, now and whenever credentials have changed.
        pace: how often to ask.
        interval: seconds from one index to the next, at least.
        timing: where time and randomness come from.

    Attributes:
        index: What serves. It is replaced as a whole, never changed.
        loaded: Whether both kinds have been listed.
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
        self.loaded = False
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
        """How many mappings of each kind can be used."""
        return self.index.counts

    @property
    def rejected(self) -> int:
        """How many names have an object that can't be used."""
        return self.index.rejected

    @property
    def age(self) -> float:
        """Seconds since the mappings were last known to be the newest, of the older kind."""
        contacts = [reflector.last_seen for reflector in self._reflectors]
        return self._timing.clock() - min(contacts, default=self._begun)

    @property
    def problem(self) -> str:
        """Why the mappings aren't kept up to date now; empty if they are."""
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
        """Whether changes of both kinds are being told right now."""
        return bool(self._reflectors) and all(each.watching for each in self._reflectors)

    def load(self) -> None:
        """Prepares to ask, for the start; nothing is asked yet.

        Raises:
            ClusterError: There is no saying whom to ask, or the credentials can't be used.
        """
        self._connection = Connection(self._connect)

    async def follow(self) -> NoReturn:
        """Keeps the index up to date until cancelled; whatever comes, it goes on.

        Raises:
            ClusterError: As `load`, where that wasn't called before.
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
        """Makes an index whenever something has changed, but not all the time."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            begun = time.thread_time()  # what others take of the machine is no reason to wait
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
    """The objects of one kind, in the table of both.

    Attributes:
        settled: Whether the table holds a whole list of the kind, and what came after it.
    """

    def __init__(self, kind: str, table: MappingTable, on_change: Callable[[], None]) -> None:
        self.settled = False
        self._kind = kind
        self._table = table
        self._on_change = on_change

    def listing(self) -> "_Listing":
        """Begins to take in a list."""
        return _Listing(self)

    def upsert(self, item: Item) -> None:
        """Takes an object that is new or has changed."""
        entry = self.read(item)
        if self.is_new(entry):
            self._table.upsert(entry)
            self._on_change()

    def remove(self, item: Item) -> None:
        """Forgets an object."""
        self._table.remove(self._kind, item.metadata.namespace, item.metadata.name)
        self._on_change()

    def read(self, item: Item) -> Entry:
        """What an object stands for, or why it can't be used."""
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
        """Whether an object differs from what is known of it."""
        return entry != self._table.entry(self._kind, entry.namespace, entry.name)

    async def replace(self, changes: list[Entry], listed: set[tuple[str, str]]) -> None:
        """Makes a list all that there is; others get their turn in between.

        Args:
            changes: objects that are new or have changed.
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
    """The one annotation that counts; what else is there may be long."""
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
    """A list that is being taken in; until `finish`, all stays as it was."""

    def __init__(self, store: _Store) -> None:
        self._store = store
        self._changes: list[Entry] = []
        self._listed: set[tuple[str, str]] = set()

    def add(self, item: Item) -> None:
        """Notes an object of the list."""
        entry = self._store.read(item)
        self._listed.add((entry.namespace, entry.name))
        if self._store.is_new(entry):
            self._changes.append(entry)

    async def finish(self, unreadable: int) -> None:
        """Makes what was taken all that there is."""
        if unreadable:
            log.warning("objects without a name or not even JSON are left out", number=unreadable)
        await self._store.replace(self._changes, self._listed)


class ProblemLog:
    """Logs why mappings can't be used, not too many at a time.

    Args:
        clock: seconds, from any beginning.
        most: how many are logged in `window` seconds; of the others, the number.
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
        """Logs a problem that is new."""
        now = self._clock()
        if now >= self._until:
            self._until = now + self._window
            if self._count > self._most:
                log.warning("more mappings were left out", number=self._count - self._most)
            self._count = 0
        self._count += 1
        if self._count <= self._most:
            log.warning("mapping left out", problem=problem)
