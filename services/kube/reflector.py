"""Keeps up with one kind of custom resource, whatever the API server and the network do.

A reflector is in one of two states:

- *listing*, when it has no version to go on from: at the start, and after a watch that failed.
  Pages are read one after the other, the next one while one is taken in, and what they hold takes
  the place of everything known, all at once.
- *watching*, from the version of the list or of the last event.

How a watch ends decides what comes next:

    end                                     next                    pause
    in its time                             watch from its version  none
    early or cut, after events or bookmarks watch from its version  grows
    early or cut, after nothing             list                    grows fast
    ERROR event, error status, bad line     list                    grows fast

So while watches are broken, what is known is replaced as often as a list is made: at least once a
minute, and at most four times in a minute. Pauses start over after a watch that was open for
`Pace.steady`, or for its full time.

`contact` is the time of the last event, bookmark, complete list or watch of full length: a watch
that merely opens proves nothing. A problem is logged when it begins and when it ends, and ends with
the step that failed: a watch that works again, or a list where it was the list. Nothing ends `run`
but its cancellation: even a mistake of ours is logged and followed by a new list.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NoReturn, Protocol

import structlog

from services.kube.client import PAGE, BadStatus, ClusterClient, Expired, TooLong
from services.kube.connection import Connection
from services.kube.list_watch import Event, Item, ListWatch, Page, read_item
from services.kube.pace import Pace
from services.kube.remedies import (
    NOT_FOUND,
    asked_to_wait,
    may_be_elsewhere,
    will_pass,
)
from services.process.errors import ClusterError
from services.process.retry import GROWTH

BREATH_BYTES: Final = 32 * 1024
"""How much of a page is taken in before others get their turn on the event loop."""

_PAGE_TRIES: Final = 5
"""How often a page is asked for in a row, once there are pages before it."""
_WATCH_GROWTH: Final = 10.0
"""How fast pauses grow while watches fail: each try costs a list and a watch of two kinds."""
_EARLY: Final = "the API server ends watches before their time"
_FULL: Final = 0.9
"""How much of its time a watch lasts that ends in time."""

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
        contact: when what is known was last known to be the newest, by the clock; at the start,
            the start.
        problem: why the store isn't kept up to date now; empty if it is.
        failures: how many lists and watches have failed.
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
        self.failures = 0
        self._kind = path.rpartition("/")[2]
        self._path = path
        self._connection = connection
        self._store = store
        self._pace = pace
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._backoff = pace.backoff(jitter)
        self._version = ""
        self._opened: float | None = None
        self._proven = False
        """Whether the watch has told anything."""
        self._failed_watches = 0
        """How many failed in a row; while there are any, a list that works is no recovery."""
        self._flapping = False
        """Whether the last watch failed although it had told something."""
        self._excused = False
        """Whether a watch has ended in a way that is a problem only when it happens again."""
        self._since = 0.0
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
                except ClusterError as error:
                    self.failures += 1
                    if self._failed_watches == 1:  # it was the server that failed, not watching
                        self._failed_watches = 0
                    return self._paused(client, error)
                return await self._follow(client, wire)
        except Exception:
            log.exception("mappings are listed anew after a mistake of ours", kind=self._kind)
            self._version = ""
            self.failures += 1
            return self._backoff.pause()

    async def _follow(self, client: ClusterClient, wire: ListWatch) -> float:
        """Watches once; returns how long to wait before the next time."""
        seconds = max(1, round(self._pace.watch * (3 + self._jitter()) / 4))
        error: ClusterError | None = None
        try:
            await self._watch(wire, seconds)
        except ClusterError as raised:
            error = raised
        finally:
            held, self._opened = self._open_seconds, None
        if error is not None or held < _FULL * seconds:
            return self._ended(client, error, steady=held >= self._pace.steady)
        self._flapping = self._excused = False
        self._watch_works()
        self._backoff.reset()
        return 0.0

    @property
    def _open_seconds(self) -> float:
        return 0.0 if self._opened is None else self._clock() - self._opened

    async def _list(self, wire: ListWatch) -> str:
        """Replaces what is in the store; returns the version to watch from."""
        began = self._clock()
        listing = self._store.listing()
        version, unreadable = "", 0
        async with _one_ahead(self._pages(wire)) as pages:
            async for page in pages:
                version = version or page.resource_version
                unreadable += await _take(listing, page)
        await listing.finish(unreadable)
        self.contact = max(self.contact, began)
        if not self._failed_watches:
            self._recovered()
        return version

    async def _pages(self, wire: ListWatch) -> AsyncGenerator[Page, None]:
        """The pages of a list, each asked for as often as is worth it.

        Where a page of one object is too long, `limit` counts for nothing: a server may give all
        that it has instead (the API's reference, `limit` of a list).
        """
        backoff = self._pace.backoff(self._jitter)
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
                    pause = backoff.pause(asked_to_wait(error))
                    self.failures += 1
                    self._tell(_advice(error, self._kind), pause)
                    await self._sleep(pause)
                else:
                    raise
                continue
            backoff.reset()
            yield page
            limit = min(self._limit, limit * 2)
            token = page.next
            if not token:
                return

    async def _watch(self, wire: ListWatch, seconds: int) -> None:
        """Follows what happens until the server ends the watch."""
        idle = seconds + self._pace.grace
        self._proven = False
        async with wire.events(self._version, seconds=seconds, idle_seconds=idle) as events:
            self._opened = self._clock()
            async for event in events:
                self._proven = True
                self._apply(event)
                self._watch_works()

    def _apply(self, event: Event) -> None:
        if event.item is None:
            pass
        elif event.deleted:
            self._store.remove(event.item)
        else:
            self._store.put(event.item)
        self._version = event.resource_version or self._version

    def _watch_works(self) -> None:
        self.contact = self._clock()
        if not self._flapping or self._open_seconds >= self._pace.steady:
            self._failed_watches = 0
            self._recovered()

    def _ended(self, client: ClusterClient, error: ClusterError | None, *, steady: bool) -> float:
        """Decides how to go on after a watch that failed; returns how long to wait.

        Args:
            client: whom it was asked of.
            error: how it ended; None if the server ended it properly, but early.
            steady: whether it was open for long.
        """
        self.failures += 1
        resumes = self._proven and not isinstance(error, (BadStatus, Expired, TooLong))
        if not resumes:
            self._version = ""
            self._failed_watches = 0 if steady else self._failed_watches + 1
        self._flapping = self._proven and not steady
        if steady:
            self._backoff.reset()
            self._excused = False
        growth = GROWTH if resumes else _WATCH_GROWTH
        if not self._excused and (steady or error is None or isinstance(error, Expired)):
            # This happens to watches of servers that are well: it is a problem once it repeats.
            self._excused = True
            log.debug("mappings are listed anew", kind=self._kind, because=str(error or _EARLY))
            return self._backoff.pause(growth=growth)
        return self._paused(client, error or ClusterError(_EARLY), growth=growth)

    def _paused(
        self, client: ClusterClient, error: ClusterError, *, growth: float = GROWTH
    ) -> float:
        """Notes why it doesn't work; returns how long to wait."""
        if may_be_elsewhere(error):
            self._doubted = client
        pause = self._backoff.pause(asked_to_wait(error), growth=growth)
        self._tell(_advice(error, self._kind), pause)
        return pause

    def _tell(self, problem: str, pause: float) -> None:
        now = self._clock()
        if not self.problem:
            self._since = now
        # One outage has many faces (cut, refused, too old), and nobody wants to read of each.
        say = log.debug if self.problem else log.warning
        say(
            "mappings are not kept up to date, those known serve on",
            kind=self._kind,
            problem=problem,
            age=round(now - self.contact, 1),
            next_try=round(pause, 1),
        )
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


def _advice(error: ClusterError, kind: str) -> str:
    if isinstance(error, BadStatus) and error.status == NOT_FOUND:
        return f"the API server knows no {kind}: install the custom resource definitions ({error})"
    return str(error)
