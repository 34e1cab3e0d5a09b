"""One kind of custom resource on the wire: a list page by page, then a watch line by line.

The API's own rules (kubernetes.io/docs/reference/using-api/api-concepts): a list is read in pages
that show one moment, whose resource version a watch goes on from. Both may turn out to be too old:
a page's token and a watch's version are answered with 410, as a status or as an event in the middle
of a watch. Bookmarks bring a watch's version up to date while nothing happens.

Only what a mapping is made of is decoded. What stands in an object beside that, such as
`managedFields`, is most of its bytes. One odd object doesn't keep the others from being read: what
it holds is decoded last, by itself.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from services.kube.client import Answer, BadStatus, ClusterClient, Expired
from services.process.errors import ClusterError
from services.process.nesting import decode
from services.process.text import plain

GONE: Final = 410
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """Which object it is; `annotations` is JSON of any kind."""

    name: str
    namespace: str
    uid: str = ""
    resource_version: str = ""
    annotations: msgspec.Raw = msgspec.Raw(b"null")


class Item(msgspec.Struct, gc=False):
    """An object, as far as it matters; `spec` is JSON of any kind."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list.

    Attributes:
        items: the objects, for `read_item`.
        resource_version: the moment that it shows.
        next: what to ask for the next page with; empty on the last one.
    """

    items: list[msgspec.Raw]
    resource_version: str
    next: str


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a watch.

    Attributes:
        item: the object that has changed (after the change, or as it was when it was deleted);
            None for a bookmark.
        deleted: whether it is gone.
        resource_version: where a watch goes on after this line.
    """

    item: Item | None
    deleted: bool
    resource_version: str


class ListWatch:
    """Lists and watches of one kind in all namespaces.

    Args:
        client: whom to ask.
        path: of the kind, such as `/apis/fpga.intel.com/v2/fpgaregions`.
    """

    def __init__(self, client: ClusterClient, path: str) -> None:
        self._client = client
        self._path = path

    async def page(self, token: str, *, limit: int, whole: bool = False) -> Page:
        """Asks for one page.

        Args:
            token: `next` of the page before; empty for the first one.
            limit: how many objects it may hold.
            whole: whether it may be as long as a list of all.

        Raises:
            Expired: The list changed too much since its first page.
            TooLong: The page is; ask for fewer objects.
            BadStatus: The API server says no.
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
        self, resource_version: str, *, seconds: int, idle_seconds: float
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """What happens from a moment on; ends when the server ends it.

        Args:
            resource_version: the moment: of a list, or of the last event.
            seconds: after which the server should end it.
            idle_seconds: how long nothing may come.

        Raises:
            Expired: The moment is too long ago, here or while iterating; or the server sends what
                can't be understood.
            BadStatus: The API server says no, here or while iterating.
            ClusterError: No answer; while iterating: the connection broke or fell silent.
        """
        params: dict[str, str | int] = {
            "watch": 1,
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }
        try:
            async with self._client.lines(self._path, params, idle_seconds=idle_seconds) as lines:
                yield _events(lines)
        except BadStatus as error:
            if error.status == GONE:
                raise Expired(f"version {resource_version} is too old: {error}") from error
            raise


def read_item(raw: msgspec.Raw) -> Item:
    """Reads an object of a page.

    Raises:
        ClusterError: It has no name, no namespace, or isn't even JSON.
    """
    try:
        item = _ITEM.decode(raw)
    except _UNREADABLE as error:
        raise ClusterError(f"an object can't be read: {plain(str(error), 200)}") from error
    if not item.metadata.name or not item.metadata.namespace:
        raise ClusterError("an object without a name or a namespace")
    return item


async def _events(lines: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    async for line in lines:
        if line:
            yield _read_event(line)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct):
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
_LINE: Final = msgspec.json.Decoder(_Line)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)
_STATUS: Final = msgspec.json.Decoder(_Status)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def _read_page(body: bytes, token: str, what: str) -> Page:
    try:
        page = decode(_LIST, body)
    except _UNREADABLE as error:
        raise ClusterError(f"the answer to {what} is no list: {plain(str(error), 200)}") from error
    if not page.metadata.resource_version:
        raise ClusterError(f"the list {what} tells no resource version")
    if token and page.metadata.continue_ == token:
        raise ClusterError(f"the list {what} goes round in circles")
    return Page(page.items or [], page.metadata.resource_version, page.metadata.continue_)


def _read_event(line: bytes) -> Event:
    """Reads a line of a watch.

    One that can't be understood may be the end of a cut connection, or hold a change: either way
    only a list tells what is the case.
    """
    try:
        read = decode(_LINE, line)
        if read.type in _CHANGES:
            item = read_item(read.object)
            return Event(item, read.type == "DELETED", item.metadata.resource_version)
        if read.type == "BOOKMARK":
            version = _BOOKMARK.decode(read.object).metadata.resource_version
            return Event(None, deleted=False, resource_version=version)
        if read.type == "ERROR":
            raise _told(_STATUS.decode(read.object))
    except (*_UNREADABLE, ClusterError) as error:
        if isinstance(error, (Expired, BadStatus)):
            raise
        raise Expired(f"a line of the watch can't be read: {plain(str(error), 200)}") from error
    raise Expired(f"an event of a type that nobody knows: {plain(read.type, 40)}")


def _told(status: _Status) -> ClusterError:
    said = plain(status.message, 200)
    if status.code == GONE:
        return Expired(f"the watch is too old: {said}")
    return BadStatus(f"the watch ended with {status.code}: {said}", Answer(status.code, b""))
