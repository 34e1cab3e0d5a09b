"""Mappings from the API server: both kinds of all namespaces, as one index that is replaced whole.

A reflector for each kind fills one `MappingTable`. A change that comes after some quiet is made an
index at once, since a pod that needs it may be right behind; in a storm changes are gathered, so
that it costs no more than a share of the time (`Allowance`). An index is only handed out when both
kinds have been listed: half of them would let through what the other half forbids. From then on the
last one serves, however long the API server is away; `age` tells.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, NoReturn

import msgspec
import structlog

from services import names
from services.kube.client import ClusterClient
from services.kube.connection import Connection
from services.kube.list_watch import Item, WatchTimeouts
from services.kube.reflector import Reflector
from services.mappings.model import (
    ACCELERATOR_FUNCTION,
    API_VERSION,
    DEPRECATED,
    EMPTY_INDEX,
    FPGA_REGION,
    MappingIndex,
    Rejected,
    parse,
)
from services.mappings.table import Entry, MappingTable
from services.process.errors import InvalidMapping

PATHS: Final = {
    ACCELERATOR_FUNCTION: f"/apis/{names.DOMAIN}/v2/acceleratorfunctions",
    FPGA_REGION: f"/apis/{names.DOMAIN}/v2/fpgaregions",
}
INTERVAL: Final = 0.01
"""Seconds between two indexes, on average while changes come all the time."""
AT_ONCE: Final = 20
"""Indexes that may be made without a pause after some quiet."""
MAX_SHARE: Final = 0.05
"""How much of the event loop's time making indexes may take."""
BREATH: Final = 64
"""Changes that are made to the table before others get their turn on the event loop."""
KEYS_BREATH: Final = 4096
"""The same for keys that are looked through."""

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
        interval: seconds between two indexes, on average while changes come all the time.
        timing: where time and randomness come from.

    Attributes:
        index: What serves. It is replaced as a whole, never changed.
        loaded: Whether both kinds have been listed.
        counts: How many mappings of each kind can be used, in what serves.
        rejected: How many names have an object that can't, in what serves.
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
        self.counts: Mapping[str, int] = dict.fromkeys(PATHS, 0)
        self.rejected = 0
        self._connect = connect
        self._connection: Connection | None = None
        self._pace = pace or WatchTimeouts()
        self._interval = interval
        self._timing = timing or Timing()
        self._begun = self._timing.clock()
        self._table = MappingTable()
        self._teller = Teller(self._timing.clock)
        self._changed = asyncio.Event()
        self._stores = {kind: _Store(kind, self._table, self._teller, self) for kind in PATHS}
        self._reflectors: list[Reflector] = []

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

    def changed(self) -> None:
        """Has a new index made soon."""
        self._changed.set()

    async def _publish(self) -> NoReturn:
        """Makes an index whenever something has changed, but not all the time."""
        allowance = Allowance(AT_ONCE * self._interval)
        while True:
            await self._changed.wait()
            self._changed.clear()
            begun = time.thread_time()  # what others take of the machine is no reason to wait
            if all(store.settled for store in self._stores.values()):
                self._swap(self._table.snapshot())
            cost = time.thread_time() - begun
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(allowance.spend(now, max(self._interval, cost / MAX_SHARE)))

    def _swap(self, index: MappingIndex) -> None:
        self.index = index
        self.counts, self.rejected = dict(self._table.counts), self._table.rejected
        if not self.loaded:
            self.loaded = True
            log.info(
                "mappings loaded",
                mappings=len(index),
                namespaces=len(index.namespaces),
                problems=self.rejected,
            )


class Allowance:
    """Time that is spent, at most as fast as it passes, but for what was saved up before.

    Args:
        most: seconds that are saved up at most.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._spent_until = -math.inf

    def spend(self, now: float, seconds: float) -> float:
        """Spends some; returns for how many seconds nothing more may be spent."""
        self._spent_until = max(self._spent_until, now - self._most) + seconds
        return max(0.0, self._spent_until - now)


class _Store:
    """The objects of one kind, in the table of both.

    Attributes:
        settled: Whether the table holds a whole list of the kind, and what came after it.
    """

    def __init__(
        self, kind: str, table: MappingTable, teller: "Teller", source: ApiServerSource
    ) -> None:
        self.settled = False
        self._kind = kind
        self._table = table
        self._teller = teller
        self._source = source

    def listing(self) -> "_Listing":
        """Begins to take in a list."""
        return _Listing(self)

    def upsert(self, item: Item) -> None:
        """Takes an object that is new or has changed."""
        entry = self.read(item)
        if entry != self.known(entry.namespace, entry.name):
            self.place(entry)
            self._source.changed()

    def remove(self, item: Item) -> None:
        """Forgets an object."""
        self._table.remove(self._kind, item.metadata.namespace, item.metadata.name)
        self._source.changed()

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

    def known(self, namespace: str, name: str) -> Entry | None:
        """What is known of an object."""
        return self._table.entry(self._kind, namespace, name)

    def place(self, entry: Entry) -> None:
        """Puts what is known of an object, and tells if it can't be used."""
        table = self._table
        before = table.reason(entry.namespace, entry.name) if table.rejected else None
        table.put(entry)
        reason = table.reason(entry.namespace, entry.name) if table.rejected else None
        if reason is not None and reason != before:
            self._teller.tell(reason)

    async def replace(self, changes: dict[str, list[Entry]], listed: dict[str, set[str]]) -> None:
        """Makes a list all that there is, with a breath now and then.

        Args:
            changes: objects that are new or have changed, by namespace.
            listed: the names of all objects, by namespace.
        """
        self.settled = False
        for number, entry in enumerate(chain.from_iterable(changes.values()), 1):
            self.place(entry)
            if number % BREATH == 0:
                await asyncio.sleep(0)
        gone = []
        for number, (namespace, name) in enumerate(self._table.keys(self._kind), 1):
            if name not in listed.get(namespace, ()):
                gone.append((namespace, name))
            if number % KEYS_BREATH == 0:
                await asyncio.sleep(0)
        for number, (namespace, name) in enumerate(gone, 1):
            self._table.remove(self._kind, namespace, name)
            if number % BREATH == 0:
                await asyncio.sleep(0)
        changed = sum(map(len, changes.values()))
        log.debug("listed", kind=self._kind, changed=changed, gone=len(gone))
        self.settled = True
        self._source.changed()


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
    """A list that is being taken in; until `finish`, all stays as it was.

    Changes are kept by namespace, in whatever order they come: the table takes in one namespace
    after the other at a fraction of the cost of going to and fro among many.
    """

    def __init__(self, store: _Store) -> None:
        self._store = store
        self._changes: dict[str, list[Entry]] = {}
        self._listed: dict[str, set[str]] = {}

    def add(self, item: Item) -> None:
        """Notes an object of the list."""
        entry = self._store.read(item)
        known = self._store.known(entry.namespace, entry.name)
        # The known one's text is kept rather than the new one's: there may be 100 000.
        name = entry.name if known is None else known.name
        self._listed.setdefault(entry.namespace, set()).add(name)
        if entry != known:
            self._changes.setdefault(entry.namespace, []).append(entry)

    async def finish(self, unreadable: int) -> None:
        """Makes what was taken all that there is."""
        if unreadable:
            log.warning("objects without a name or not even JSON are left out", number=unreadable)
        await self._store.replace(self._changes, self._listed)


class Teller:
    """Logs why mappings can't be used, once each, and not too many at a time.

    Args:
        clock: seconds, from any beginning.
        most: how many are told in `window` seconds; of the others, the number.
    """

    def __init__(
        self, clock: Callable[[], float], *, most: int = 100, window: float = 60.0
    ) -> None:
        self._clock = clock
        self._most = most
        self._window = window
        self._until = clock() + window
        self._told = 0

    def tell(self, problem: str) -> None:
        """Logs a problem that is new."""
        now = self._clock()
        if now >= self._until:
            self._until = now + self._window
            if self._told > self._most:
                log.warning("more mappings were left out", number=self._told - self._most)
            self._told = 0
        self._told += 1
        if self._told <= self._most:
            log.warning("mapping left out", problem=problem)
