"""Keeps up with one kind of custom resource, whatever the API server and the network do.

A reflector is in one of two states:

- *listing*, when it knows no version to go on from: at the start, and whenever what it knows turns
  out to be too old (410, as a status or as an event) or can't be understood. Pages are read one
  after the other, the next one while one is taken in, and what they hold takes the place of
  everything known, all at once.
- *watching*, from the version of the list or of the last event. However a watch ends, the next one
  goes on from there: after a proper end that took its time at once, otherwise after a pause that
  grows (`backoff`). That holds for proper ends that come too soon, too.

What is known stays known while neither works; how old it is, `contact` tells. Nothing ends `run`
but its cancellation: even a mistake of ours is logged and followed by a new list.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NoReturn, Protocol

import structlog

from services.cluster.backoff import Backoff, Pace
from services.cluster.client import PAGE, BadStatus, ClusterClient, Expired, TooLong
from services.cluster.connection import Connection
from services.cluster.list_watch import Event, Item, ListWatch, Page, read_item
from services.cluster.remedies import (
    FORBIDDEN,
    NOT_FOUND,
    UNAUTHORIZED,
    asked_to_wait,
    may_be_elsewhere,
    will_pass,
)
from services.domain.errors import ClusterError

BREATH_BYTES: Final = 32 * 1024
"""How much of a page is taken in before others get their turn on the event loop."""

_TOO_LARGE_VERSION: Final = 504
_PAGE_TRIES: Final = 8
"""How often a page is asked for in a row, once there are pages before it."""
_OFTEN: Final = 3
"""New lists in a row from which on having to list is a problem."""

log = structlog.get_logger(room="mappings")


class Listing(Protocol):
    """Takes in a list."""

    def take(self, item: Item) -> None:
        """Notes an object of the list; nothing changes yet."""

    async def finish(self, unreadable: int) -> None:
        """Makes what was taken all that there is; so many other objects couldn't be read."""


class Store(Protocol):
    """Where the objects of a kind go."""

    def listing(self) -> Listing:
        """Begins to take in a list."""

    def put(self, item: Item) -> None:
        """Takes an object that is new or has changed."""

    def remove(self, item: Item) -> None:
        """Forgets an object."""


class Reflector:
    """Fills a store with the objects of a kind, and keeps it up to date.

    Args:
        path: of the kind, such as `/apis/fpga.intel.com/v2/fpgaregions`.
        connection: whom to ask.
        store: where the objects go.
        pace: how often to ask.
        limit: objects in a page.
        clock: seconds, from any beginning.
        sleep: waits for some seconds.
        jitter: gives numbers from 0 to 1.

    Attributes:
        contact: when the server last told something, by the clock; at the start, the start.
        problem: why the store isn't kept up to date now; empty if it is.
    """

    def __init__(
        self,
        path: str,
        connection: Connection,
        store: Store,
        *,
        pace: Pace,
        limit: int = PAGE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.contact = clock()
        self.problem = ""
        self._kind = path.rpartition("/")[2]
        self._path = path
        self._connection = connection
        self._store = store
        self._pace = pace
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._backoff = Backoff(pace, jitter)
        self._version = ""
        self._opened: float | None = None
        self._told = self._since = 0.0
        self._told_of = ""
        self._expired = 0
        self._whole = False
        self._doubted: ClusterClient | None = None

    @property
    def watching(self) -> bool:
        """Whether a watch is open."""
        return self._opened is not None

    async def run(self) -> NoReturn:
        """Keeps the store up to date until cancelled."""
        while True:
            await self._sleep(await self._attempt())

    async def _attempt(self) -> float:
        """Lists if need be, then watches once; returns how long to wait before the next time."""
        try:
            doubted, self._doubted = self._doubted, None
            if doubted is not None:  # only now: the files may have changed during the pause
                await self._connection.renew(doubted)
            async with self._connection.client() as client:
                wire = ListWatch(client, self._path)
                try:
                    if not self._version:
                        self._version = await self._list(wire)
                    await self._watch(wire)
                except ClusterError as error:
                    return self._failed(client, error)
        except Exception:
            self._held()
            log.exception("mappings are listed anew after a mistake of ours", kind=self._kind)
            self._version = ""
            return self._backoff.pause()
        if self._held():
            return 0.0
        return self._backoff.pause()

    async def _list(self, wire: ListWatch) -> str:
        """Replaces what is in the store; returns the version to watch from."""
        listing = self._store.listing()
        version, unreadable = "", 0
        async with _one_ahead(self._pages(wire)) as pages:
            async for page in pages:
                version = version or page.resource_version
                unreadable += await _take(listing, page)
        await listing.finish(unreadable)
        return version

    async def _pages(self, wire: ListWatch) -> AsyncGenerator[Page, None]:
        """The pages of a list, each asked for as often as is worth it.

        Where a page of one object is too long, `limit` counts for nothing: a server may give all
        that it has instead (the API's reference, `limit` of a list).
        """
        backoff = Backoff(self._pace, self._jitter)
        token, limit = "", self._limit
        while True:
            try:
                page = await wire.page(token, limit=limit, whole=self._whole)
            except ClusterError as error:
                if isinstance(error, TooLong) and limit > 1:
                    limit = max(1, limit // 8)
                elif isinstance(error, TooLong) and not self._whole:
                    self._whole = True
                elif token and will_pass(error) and backoff.failures < _PAGE_TRIES:
                    # The pages that are here already are worth more tries for the next one.
                    await self._sleep(self._paused(error, backoff))
                else:
                    raise
                continue
            backoff.reset()
            self._heard()
            yield page
            limit = min(self._limit, limit * 2)
            token = page.next
            if not token:
                return

    async def _watch(self, wire: ListWatch) -> None:
        """Follows what happens until the server ends the watch."""
        seconds = max(1, round(self._pace.watch * (3 + self._jitter()) / 4))
        idle = seconds + self._pace.grace
        async with wire.events(self._version, seconds=seconds, idle_seconds=idle) as events:
            self._opened = self._clock()
            self._heard()
            self._recovered()
            async for event in events:
                self._heard()
                self._apply(event)

    def _apply(self, event: Event) -> None:
        if event.item is None:
            pass
        elif event.deleted:
            self._store.remove(event.item)
        else:
            self._store.put(event.item)
        self._version = event.resource_version or self._version

    def _heard(self) -> None:
        self.contact = self._clock()

    def _held(self) -> bool:
        """Whether the watch that has ended was a good one."""
        opened, self._opened = self._opened, None
        held = opened is not None and self._clock() - opened >= self._pace.steady
        if held:
            self._backoff.reset()
            self._expired = 0
        return held

    def _failed(self, client: ClusterClient, error: ClusterError) -> float:
        """Decides how to go on after an error; returns how long to wait."""
        self._held()
        if self._version and not _may_go_on(error):
            self._version = ""
            if isinstance(error, Expired):
                self._expired += 1
                if self._expired == 1:
                    self._backoff.reset()  # the server is there: what failed before is over
                if self._expired < _OFTEN:
                    log.info("mappings are listed anew", kind=self._kind, because=str(error))
                    return self._backoff.pause()
        if may_be_elsewhere(error):
            self._doubted = client
        return self._paused(error, self._backoff)

    def _paused(self, error: ClusterError, backoff: Backoff) -> float:
        """Tells of an error; returns how long to wait."""
        pause = backoff.pause(asked_to_wait(error))
        self._tell(_advice(error, self._kind), pause)
        return pause

    def _tell(self, problem: str, pause: float) -> None:
        now = self._clock()
        if not self.problem:
            self._since = now
        # One outage has many faces (cut, refused, too old), and nobody wants to read of each.
        wait = self._pace.remind if problem == self._told_of else self._pace.news
        if not self.problem or now - self._told >= wait:
            log.warning(
                "mappings are not kept up to date, those known serve on",
                kind=self._kind,
                problem=problem,
                age=round(now - self.contact, 1),
                next_try=round(pause, 1),
            )
            self._told, self._told_of = now, problem
        self.problem = problem

    def _recovered(self) -> None:
        if self.problem:
            after = round(self._clock() - self._since, 1)
            log.info("mappings are kept up to date again", kind=self._kind, after=after)
        self.problem = ""


@asynccontextmanager
async def _one_ahead(pages: AsyncGenerator[Page, None]) -> AsyncIterator[AsyncIterator[Page]]:
    """Pages, of which the next one is on its way while one is being taken in."""
    coming = asyncio.ensure_future(anext(pages, None))

    async def each() -> AsyncIterator[Page]:
        nonlocal coming
        while (page := await coming) is not None:
            coming = asyncio.ensure_future(anext(pages, None))
            yield page

    try:
        yield each()
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await pages.aclose()


async def _take(listing: Listing, page: Page) -> int:
    """Takes in a page, with a breath now and then; returns how many objects couldn't be read."""
    unreadable = taken = 0
    for raw in page.items:
        try:
            listing.take(read_item(raw))
        except ClusterError:
            unreadable += 1
        taken += memoryview(raw).nbytes
        if taken > BREATH_BYTES:
            taken = 0
            await asyncio.sleep(0)
    return unreadable


def _may_go_on(error: ClusterError) -> bool:
    """Whether a watch may be taken up where it ended.

    Not after "too large resource version" (504): that is a server which lags behind another, or
    one that was restored from a backup and will never again reach the version we know. But after
    403: whoever may list and not watch would do nothing but list.
    """
    if isinstance(error, BadStatus) and error.status in {UNAUTHORIZED, FORBIDDEN}:
        return True
    if isinstance(error, BadStatus) and error.status == _TOO_LARGE_VERSION:
        return False
    return will_pass(error)


def _advice(error: ClusterError, kind: str) -> str:
    if isinstance(error, BadStatus) and error.status == NOT_FOUND:
        return f"the API server knows no {kind}: install the custom resource definitions ({error})"
    return str(error)
