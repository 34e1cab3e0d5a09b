"""Keeps a store up to date with the objects of one kind through all outages.

A reflector is in one of two states:

- *listing*, when it has no version to watch from: at the start, and after a watch that failed. What
  its pages hold replaces everything known, all at once.
- *watching*, from the version of the list or of the last event.

How a watch ends decides what comes next:

    end                                     next                    pause
    on time                                 watch from its version  none
    early or cut, after events or bookmarks watch from its version  grows
    early or cut, after nothing             list                    grows fast
    ERROR event, error status, bad line     list                    grows fast

A watch that hangs, without an answer or without an end, is cut after its time and has failed. A
pause counts from the request of the watch, so the time of a hanging watch is not added to it.

So while watches are broken, the objects are listed at least once and at most four times a minute.
Pauses start over after a watch that was open for `WatchTimeouts.steady`, or for its full time.

`last_seen` is the time of the last event, bookmark, complete list or watch of full length: a watch
that only opens proves nothing. An error is logged when it starts and when it ends. It ends when the
failed step works again: the watch, or the list. The first early end since the last watch of full
length is not an error, because healthy servers restart. Only cancellation ends `watch_forever`: an
internal error is logged and followed by a new list.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, NoReturn, Protocol

import structlog

from services.kube.client import (
    NOT_FOUND,
    PAGE,
    BadStatus,
    ClusterClient,
    Dropped,
    Expired,
    TooLong,
    may_be_elsewhere,
    requested_pause,
    will_pass,
)
from services.kube.connection import Connection
from services.kube.list_watch import (
    WATCH_GROWTH,
    Event,
    Item,
    ListWatch,
    Page,
    WatchTimeouts,
    is_full,
    read_item,
)
from services.process.errors import ClusterError
from services.process.retry import GROWTH

BREATH_BYTES: Final = 32 * 1024
"""Bytes of a page that are read before other tasks run."""

_PAGE_TRIES: Final = 5
"""How often a page after the first one is requested in a row."""
_EARLY: Final = "the API server ends watches early"

log = structlog.get_logger(room="mappings")


class Listing(Protocol):
    """Collects the objects of a list."""

    def add(self, item: Item) -> None:
        """Add an object of the list; nothing changes yet."""

    async def finish(self, unreadable: int) -> None:
        """Replace all objects by those that were added; `unreadable` others had errors."""


class Store(Protocol):
    """Receives the objects of a kind."""

    def listing(self) -> Listing:
        """Begin to collect a list."""

    def upsert(self, item: Item) -> None:
        """Store an object that is new or has changed."""

    def remove(self, item: Item) -> None:
        """Forget an object."""


class Reflector:
    """Fills a store with the objects of a kind and keeps it up to date.

    `path` is the kind's; `clock` is monotonic; `jitter` returns numbers from 0 to 1.
    """

    def __init__(
        self,
        path: str,
        connection: Connection,
        store: Store,
        *,
        timeouts: WatchTimeouts,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.last_seen = clock()
        """When the store was last known to be up to date; initially the start."""
        self.error = ""
        """Why the store isn't being updated now; empty if it is."""
        self.failures = 0
        """How many lists and watches have failed."""
        self._kind = path.rpartition("/")[2]
        self._path = path
        self._connection = connection
        self._store = store
        self._timeouts = timeouts
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._backoff = timeouts.backoff(jitter)
        self._version = ""
        self._opened: float | None = None
        self._proven = False
        """Whether the watch has sent anything."""
        self._failed_watches = 0
        """How many failed in a row; while there are any, a list alone is no recovery."""
        self._flapping = False
        """Whether the last watch failed although it had sent something."""
        self._excused = False
        """Whether a watch ended early since the last full one; the first early end is no error."""
        self._error_since = 0.0
        self._whole = False
        self._doubted: ClusterClient | None = None

    @property
    def watching(self) -> bool:
        """Whether a watch is open."""
        return self._opened is not None

    async def watch_forever(self) -> NoReturn:
        """Keep the store up to date until cancelled."""
        while True:
            await self._sleep(await self._attempt())

    async def _attempt(self) -> float:
        """List if necessary, then watch once; return the seconds until the next attempt."""
        try:
            doubted, self._doubted = self._doubted, None
            if doubted is not None:  # after the pause: the files may have changed during it
                await self._connection.renew(doubted)
            async with self._connection.client() as client:
                wire = ListWatch(client, self._path)
                try:
                    if not self._version:
                        self._version = await self._list(wire)
                except ClusterError as error:
                    self.failures += 1
                    if self._failed_watches == 1:  # the server failed, not watching
                        self._failed_watches = 0
                    return self._paused(client, error)
                return await self._follow(client, wire)
        except Exception:
            log.exception("internal error: mappings are listed again", kind=self._kind)
            self._version = ""
            self.failures += 1
            return self._backoff.pause()

    async def _follow(self, client: ClusterClient, wire: ListWatch) -> float:
        """Watch once; return the seconds until the next attempt."""
        seconds = self._timeouts.next_watch(self._jitter)
        error: ClusterError | None = None
        began = self._clock()
        try:
            await self._watch(wire, seconds)
        except ClusterError as raised:
            error = raised
        finally:
            held, self._opened = self._open_seconds, None
        if error is not None or not is_full(seconds, held):
            pause = self._ended(client, error, steady=held >= self._timeouts.steady)
            return max(min(pause, self._timeouts.first), pause - (self._clock() - began))
        self._flapping = self._excused = False
        self._watch_works()
        self._backoff.reset()
        return 0.0

    @property
    def _open_seconds(self) -> float:
        return 0.0 if self._opened is None else self._clock() - self._opened

    async def _list(self, wire: ListWatch) -> str:
        """Replace the objects of the store; return the version to watch from."""
        began = self._clock()
        listing = self._store.listing()
        version, unreadable = "", 0
        async with aclosing(self._pages(wire)) as pages:
            async for page in pages:
                version = version or page.resource_version
                unreadable += await _add_page(listing, page)
        await listing.finish(unreadable)
        self.last_seen = max(self.last_seen, began)
        if not self._failed_watches:
            self._recovered()
        return version

    async def _pages(self, wire: ListWatch) -> AsyncGenerator[Page, None]:
        """Yield the pages of a list; later pages are requested several times.

        Where a page of one object is too long, the server ignores `limit` and sends the whole list,
        as the API allows.
        """
        backoff = self._timeouts.backoff(self._jitter)
        token, limit = "", PAGE
        while True:
            try:
                page = await wire.page(token, limit=limit, whole=self._whole)
            except ClusterError as error:
                if isinstance(error, TooLong) and limit > 1:
                    limit = max(1, limit // 8)
                elif isinstance(error, TooLong) and not self._whole:
                    self._whole = True
                elif token and will_pass(error) and backoff.failures < _PAGE_TRIES:
                    # The pages before this one would have to be read again.
                    pause = backoff.pause(requested_pause(error))
                    self.failures += 1
                    self._log_error(error, pause)
                    await self._sleep(pause)
                else:
                    raise
                continue
            backoff.reset()
            yield page
            limit = min(PAGE, limit * 2)
            token = page.next
            if not token:
                return

    async def _watch(self, wire: ListWatch, seconds: int) -> None:
        """Apply events until the server ends the watch."""
        grace = self._timeouts.grace
        self._proven = False
        async with wire.events(self._version, seconds=seconds, grace=grace) as events:
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
            self._store.upsert(event.item)
        self._version = event.resource_version or self._version

    def _watch_works(self) -> None:
        self.last_seen = self._clock()
        if not self._flapping or self._open_seconds >= self._timeouts.steady:
            self._failed_watches = 0
            self._recovered()

    def _ended(self, client: ClusterClient, error: ClusterError | None, *, steady: bool) -> float:
        """Note a watch that failed; return the seconds to wait.

        Without an `error` the server ended it early. `steady`: it was open for long.
        """
        self.failures += 1
        resumes = self._proven and not isinstance(error, (BadStatus, Expired, TooLong))
        self._flapping = self._proven and not steady
        if steady:
            self._backoff.reset()
        growth = GROWTH if resumes else WATCH_GROWTH
        excused = not self._excused and _healthy_servers_do(error, steady=steady)
        if not resumes:
            self._version = ""
        if excused:
            self._excused = True
            log.debug("mappings are listed again", kind=self._kind, reason=str(error or _EARLY))
            return self._backoff.pause(growth=growth)
        if not resumes:
            self._failed_watches += 1
        return self._paused(client, error or ClusterError(_EARLY), growth=growth)

    def _paused(
        self, client: ClusterClient, error: ClusterError, *, growth: float = GROWTH
    ) -> float:
        """Note an error; return the seconds to wait."""
        if may_be_elsewhere(error):
            self._doubted = client
        pause = self._backoff.pause(requested_pause(error), growth=growth)
        self._log_error(error, pause)
        return pause

    def _log_error(self, error: ClusterError, pause: float) -> None:
        text, now = str(error), self._clock()
        if isinstance(error, BadStatus) and error.status == NOT_FOUND:
            text = (
                f"the API server knows no {self._kind}: install the custom resource definitions"
                f" ({error})"
            )
        if not self.error:
            self._error_since = now
        # One outage causes many errors (cut, refused, too old), of which only the first is logged.
        write_log = log.debug if self.error else log.warning
        write_log(
            "mappings are not being updated, the known ones stay in use",
            kind=self._kind,
            problem=text,
            age=round(now - self.last_seen, 1),
            next_try=round(pause, 1),
        )
        self.error = text

    def _recovered(self) -> None:
        if self.error:
            after = round(self._clock() - self._error_since, 1)
            log.info("mappings are being updated again", kind=self._kind, after=after)
        self.error = ""


def _healthy_servers_do(error: ClusterError | None, *, steady: bool) -> bool:
    """Whether an end of a watch is an error only if it happens again."""
    return error is None or isinstance(error, Expired) or (steady and isinstance(error, Dropped))


async def _add_page(listing: Listing, page: Page) -> int:
    """Add the objects of a page to a list; return how many couldn't be read."""
    unreadable = added = 0
    for raw in page.items:
        try:
            listing.add(read_item(raw))
        except ClusterError:
            unreadable += 1
        added += memoryview(raw).nbytes
        if added > BREATH_BYTES:
            added = 0
            await asyncio.sleep(0)
    return unreadable
