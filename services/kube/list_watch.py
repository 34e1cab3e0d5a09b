"""Lists and watches on the wire: a list page by page, then a watch line by line.

The rules of the API (kubernetes.io/docs/reference/using-api/api-concepts): all pages of a list show
one moment, and a watch starts from the list's resource version. A page's token or a watch's version
may be too old; the answer is 410, as a status or as an event within a watch. Bookmarks update a
watch's version while there are no changes.

Only the fields of mappings are decoded; most bytes of an object are others, such as
`managedFields`. Each object is decoded separately, so that a broken one doesn't hide the others.
"""

import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from services.kube.client import GONE, BadStatus, ClusterClient, Expired, HttpResponse
from services.process.errors import ClusterError
from services.process.retry import FIRST_SECONDS, LONGEST_SECONDS, Backoff
from services.process.text import plain

CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
WATCH_GROWTH: Final = 10.0
"""How fast pauses grow while watches fail: each attempt costs a list and a watch of two kinds, or a
read and a watch on every node."""
_FULL: Final = 0.9
"""A watch has ended on time after this part of its time."""


@dataclass(frozen=True, slots=True)
class WatchTimeouts:
    """The pauses and time-outs of watches, in seconds."""

    first: float = FIRST_SECONDS
    """The pause after the first failure; it grows with each further one."""
    longest: float = LONGEST_SECONDS
    """The longest pause."""
    steady: float = 15.0
    """A watch that was open this long resets the pauses, however it ended: at most four such
    watches per minute, each with a list, are few enough."""
    watch: float = 60.0
    """The length of a watch. It bounds the age of what is known, and how long a dead connection
    stays unnoticed."""
    grace: float = 10.0
    """How much longer a watch may take before it counts as hanging."""

    def backoff(self, jitter: Callable[[], float] = random.random) -> Backoff:
        """Create the pauses of one retry loop; `jitter` returns numbers from 0 to 1."""
        return Backoff(self.first, self.longest, jitter=jitter)

    def next_watch(self, jitter: Callable[[], float] = random.random) -> int:
        """Return the length of the next watch, with jitter."""
        return max(1, round(self.watch * (3 + jitter()) / 4))


def is_full(seconds: float, held: float) -> bool:
    """Whether a watch of `seconds` that was open for `held` seconds ended on time."""
    return held >= _FULL * seconds


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """The metadata that matter; `annotations` is undecoded."""

    name: str
    namespace: str
    uid: str = ""
    resource_version: str = ""
    annotations: msgspec.Raw = msgspec.Raw(b"null")


class Item(msgspec.Struct, gc=False):
    """The fields of an object that matter; `spec` is undecoded."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list."""

    items: list[msgspec.Raw]
    """The objects, for `read_item`."""
    resource_version: str
    """The moment that the list shows."""
    next: str
    """The token of the next page; empty on the last one."""


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a watch."""

    item: Item | None
    """The object after the change or before its deletion; None for a bookmark."""
    deleted: bool
    resource_version: str
    """The version to watch from after this line."""


class ListWatch:
    """Lists and watches of one kind in all namespaces, by its path."""

    def __init__(self, client: ClusterClient, path: str) -> None:
        self._client = client
        self._path = path

    async def page(self, token: str, *, limit: int, whole: bool = False) -> Page:
        """Read the first page, or the one after the page with this token as `next`.

        With `whole`, it may have `MAX_LIST` bytes.

        Raises:
            Expired: The list is too old to be continued.
            TooLong: The page is too long; request fewer objects.
            BadStatus: The API server refuses.
            ClusterError: No answer, or no list.
        """
        params: dict[str, str | int] = {"limit": limit}
        if token:
            params["continue"] = token
        what = f"GET {self._path}"
        answer = await self._client.request("GET", self._path, params=params, whole=whole)
        if answer.status == GONE:
            raise Expired(f"the rest of the list {what} has expired")
        return _read_page(self._client.expect(answer, what).body, token, what)

    @asynccontextmanager
    async def events(
        self, resource_version: str, *, seconds: int, grace: float
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Watch from a version until the server ends the watch after `seconds`.

        A watch that lasts longer by `grace` counts as hanging.

        Raises:
            Expired: The version is too old, here or while iterating; or a line can't be read.
            BadStatus: The API server refuses, here or while iterating.
            ClusterError: No answer; while iterating: the connection broke, or the watch hangs.
        """
        params: dict[str, str | int] = {
            "watch": 1,
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }
        try:
            async with self._client.lines(self._path, params, seconds=seconds + grace) as lines:
                yield (_read_event(line) async for line in lines if line)
        except BadStatus as error:
            if error.status == GONE:
                raise Expired(f"version {resource_version} is too old: {error}") from error
            raise


def read_item(raw: msgspec.Raw) -> Item:
    """Read an object of a page.

    Raises:
        ClusterError: It has no name or namespace, or isn't JSON.
    """
    try:
        item = _ITEM.decode(raw)
    except UNREADABLE as error:
        raise ClusterError(f"an object can't be read: {plain(str(error), 200)}") from error
    if not item.metadata.name or not item.metadata.namespace:
        raise ClusterError("an object without a name or a namespace")
    return item


def read_watch_error(raw: msgspec.Raw) -> ClusterError:
    """Return what an `ERROR` event of a watch means.

    Raises:
        msgspec.MsgspecError: It is no Status.
    """
    status = _STATUS.decode(raw)
    message = plain(status.message, 200)
    if status.code == GONE:
        return Expired(f"the watch is too old: {message}")
    return BadStatus(
        f"the watch ended with {status.code}: {message}", HttpResponse(status.code, b"")
    )


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class Line(msgspec.Struct):
    """A line of a watch, its object not decoded."""

    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str


class _Bookmark(msgspec.Struct):
    metadata: _Version


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_LIST: Final = msgspec.json.Decoder(_List)
_ITEM: Final = msgspec.json.Decoder(Item)
_LINE: Final = msgspec.json.Decoder(Line)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)
_STATUS: Final = msgspec.json.Decoder(_Status)


T = TypeVar("T")

_MAX_DEPTH: Final = 100
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]')


def _decode(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """Decode JSON; a value nested deeper than the decoder follows is read as null.

    The API server stores `managedFields` with thousands of levels. Without this, one such object
    would make the list of all namespaces unreadable.
    """
    try:
        return decoder.decode(data)
    except RecursionError:
        return decoder.decode(_prune(data))


def _prune(data: bytes) -> bytes:
    """Return JSON with null in place of everything below `_MAX_DEPTH` levels."""
    kept, depth, start = bytearray(), 0, 0
    for match in _STRING_OR_BRACKET.finditer(data):
        if match[0] in b"[{":
            depth += 1
            if depth == _MAX_DEPTH:
                kept += data[start : match.start()] + b"null"
        elif match[0] in b"]}":
            if depth == _MAX_DEPTH:
                start = match.end()
            depth -= 1
    return bytes(kept + data[start:])


def _read_page(body: bytes, token: str, what: str) -> Page:
    try:
        page = _decode(_LIST, body)
    except UNREADABLE as error:
        raise ClusterError(
            f"the answer to {what} is not a list: {plain(str(error), 200)}"
        ) from error
    if not page.metadata.resource_version:
        raise ClusterError(f"the list {what} has no resource version")
    if token and page.metadata.continue_ == token:
        raise ClusterError(f"the list {what} repeats a page")
    return Page(page.items or [], page.metadata.resource_version, page.metadata.continue_)


def _read_event(line: bytes) -> Event:
    """Read a line of a watch.

    A line that can't be read may be cut off, or hold a change: in both cases the objects must be
    listed again.
    """
    try:
        read = _decode(_LINE, line)
        if read.type in CHANGES:
            item = read_item(read.object)
            return Event(item, read.type == "DELETED", item.metadata.resource_version)
        if read.type == "BOOKMARK":
            version = _BOOKMARK.decode(read.object).metadata.resource_version
            return Event(None, deleted=False, resource_version=version)
        if read.type == "ERROR":
            raise read_watch_error(read.object)
    except (*UNREADABLE, ClusterError) as error:
        if isinstance(error, (Expired, BadStatus)):
            raise
        raise Expired(f"a line of the watch can't be read: {plain(str(error), 200)}") from error
    raise Expired(f"an event of an unknown type: {plain(read.type, 40)}")
