"""Keeps a store up to date with the objects of one kind in all namespaces.

The rules of the API (kubernetes.io/docs/reference/using-api/api-concepts): all pages of a list show
one moment, and a watch starts from the list's resource version. A page's token or a watch's version
may be too old; the answer is 410, as a status or as an event within a watch. Bookmarks update a
watch's version while there are no changes.

A list replaces everything known, all at once. Only the fields of mappings are decoded; most bytes
of an object are others, such as `managedFields`. Each object is decoded separately, so that a
broken one doesn't hide the others. `services.kube.list_watch` has the loop.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from services.kube.client import (
    GONE,
    NOT_FOUND,
    PAGE,
    BadStatus,
    ClusterClient,
    Expired,
    TooLong,
    requested_pause,
    will_pass,
)
from services.kube.connection import Connection
from services.kube.list_watch import (
    UNREADABLE,
    Item,
    WatchEvent,
    WatchLoop,
    WatchTimeouts,
    decode,
    unreadable_line,
)
from services.process.errors import ClusterError
from services.process.text import plain

BREATH_BYTES: Final = 32 * 1024
"""Bytes of a page that are read before other tasks run."""

_PAGE_TRIES: Final = 5
"""How often a page after the first one is requested in a row."""


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


@dataclass(frozen=True, slots=True)
class _Page:
    items: list[msgspec.Raw]
    resource_version: str
    """The moment that the list shows."""
    next: str
    """The token of the next page; empty on the last one."""


class Reflector(WatchLoop):
    """Fills a store with the objects of the kind at `path`, and keeps it up to date."""

    outage = "mappings are not being updated, the known ones stay in use"
    recovery = "mappings are being updated again"

    def __init__(
        self,
        path: str,
        connection: Connection,
        store: Store,
        *,
        timeouts: WatchTimeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._kind = path.rpartition("/")[2]
        labels = {"kind": self._kind}
        super().__init__(
            connection, labels, timeouts=timeouts, clock=clock, sleep=sleep, jitter=jitter
        )
        self._path = path
        self._store = store
        self._version = ""
        """The version to watch from; empty if the objects must be listed."""
        self._whole = False
        """Whether the server ignores `limit` and sends the whole list."""

    def _forget(self) -> None:
        self._version = ""

    def _watch_request(self) -> tuple[str, dict[str, str | int]]:
        return self._path, {"resourceVersion": self._version, "allowWatchBookmarks": "true"}

    async def _read(self, client: ClusterClient) -> None:
        """Replace the objects of the store, unless a watch can go on."""
        if self._version:
            return
        began = self._clock()
        listing = self._store.listing()
        version, unreadable = "", 0
        async with aclosing(self._pages(client)) as pages:
            async for page in pages:
                version = version or page.resource_version
                unreadable += await _add_page(listing, page)
        await listing.finish(unreadable)
        self._version = version
        self._read_works(began)

    async def _pages(self, client: ClusterClient) -> AsyncGenerator[_Page, None]:
        """Yield the pages of a list; later pages are requested several times.

        Where a page of one object is too long, the server ignores `limit` and sends the whole list,
        as the API allows.
        """
        backoff = self._new_backoff()
        token, limit = "", PAGE
        while True:
            try:
                page = await self._page(client, token, limit)
            except ClusterError as error:
                if isinstance(error, TooLong) and limit > 1:
                    limit = max(1, limit // 8)
                elif isinstance(error, TooLong) and not self._whole:
                    self._whole = True
                elif token and will_pass(error) and backoff.failures < _PAGE_TRIES:
                    # The pages before this one would have to be read again.
                    pause = backoff.pause(requested_pause(error))
                    self._count_failure()
                    self._log_error(str(error), pause)
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

    async def _page(self, client: ClusterClient, token: str, limit: int) -> _Page:
        """Read the first page, or the one after the page with this token as `next`."""
        params: dict[str, str | int] = {"limit": limit}
        if token:
            params["continue"] = token
        what = f"GET {self._path}"
        answer = await client.request("GET", self._path, params=params, whole=self._whole)
        if answer.status == GONE:
            raise Expired(f"the rest of the list {what} has expired")
        try:
            body = client.expect(answer, what).body
        except BadStatus as error:
            if error.status != NOT_FOUND:
                raise
            advice = f"knows no {self._kind}: install the custom resource definitions"
            raise BadStatus(f"the API server {advice} ({error})", answer) from error
        return _read_page(body, token, what)

    async def _apply(self, client: ClusterClient, event: WatchEvent) -> None:  # noqa: ARG002 - as WatchLoop
        try:
            if event.type == "BOOKMARK":
                self._version = _BOOKMARK.decode(event.object).metadata.resource_version
                return
            item = _read_item(event.object)
        except (*UNREADABLE, ClusterError) as error:
            raise unreadable_line(error) from error
        if event.type == "DELETED":
            self._store.remove(item)
        else:
            self._store.upsert(item)
        self._version = item.metadata.resource_version or self._version


async def _add_page(listing: Listing, page: _Page) -> int:
    """Add the objects of a page to a list; return how many couldn't be read."""
    unreadable = added = 0
    for raw in page.items:
        try:
            listing.add(_read_item(raw))
        except (*UNREADABLE, ClusterError):
            unreadable += 1
        added += memoryview(raw).nbytes
        if added > BREATH_BYTES:
            added = 0
            await asyncio.sleep(0)
    return unreadable


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str


class _Bookmark(msgspec.Struct):
    metadata: _Version


_LIST: Final = msgspec.json.Decoder(_List)
_ITEM: Final = msgspec.json.Decoder(Item)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)


def _read_item(raw: msgspec.Raw) -> Item:
    item = _ITEM.decode(raw)
    if not item.metadata.name or not item.metadata.namespace:
        raise ClusterError("an object without a name or a namespace")
    return item


def _read_page(body: bytes, token: str, what: str) -> _Page:
    try:
        page = decode(_LIST, body)
    except UNREADABLE as error:
        reason = plain(str(error), 200)
        raise ClusterError(f"the answer to {what} is not a list: {reason}") from error
    if not page.metadata.resource_version:
        raise ClusterError(f"the list {what} has no resource version")
    if token and page.metadata.continue_ == token:
        raise ClusterError(f"the list {what} repeats a page")
    return _Page(page.items or [], page.metadata.resource_version, page.metadata.continue_)
