"""Keeps a store up to date with the objects of one kind, in all namespaces or of the cluster.

By list and watch, as kubernetes.io/docs/reference/using-api/api-concepts describes it.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
import structlog

from services.kube.client import (
    MAX_OBJECT,
    NOT_FOUND,
    BadStatus,
    ClusterClient,
    TooLong,
    Unreadable,
)
from services.kube.list_watch import WatchEvent, WatchLoop, WatchTiming, unreadable_line
from services.kube.lists import MAX_LIST, OBJECT_BYTES, read_pages
from services.process.json import UNREADABLE

T = TypeVar("T")

MISSING_SECONDS: Final = 30.0
"""After this time a kind that the API server doesn't know is asked for again."""
BREATH_BYTES: Final = 32 * 1024
"""Bytes of a page that are read before other tasks run."""

log = structlog.get_logger(component="kube")


# Only what matters is decoded: most bytes of an object are others, such as `managedFields`.
class ObjectMetadata(msgspec.Struct, rename="camel", gc=False):
    """The metadata of an object; `annotations` is undecoded."""

    name: str
    namespace: str = ""
    """Empty for an object of the cluster."""
    resource_version: str = ""
    annotations: msgspec.Raw = msgspec.Raw(b"null")


class Item(msgspec.Struct, gc=False):
    """An object; `spec` is undecoded."""

    metadata: ObjectMetadata
    spec: msgspec.Raw = msgspec.Raw(b"null")


Objects: TypeAlias = dict[str, dict[str, T]]
"""By namespace, which is empty for objects of the cluster, and name."""


class Store(Generic[T]):
    """The objects of one kind, each as what `read` returns for it."""

    def __init__(self, read: Callable[[Item], T], on_change: Callable[[], None]) -> None:
        self.objects: Objects[T] = {}
        self.changed: set[str] = set()
        """The namespaces with changes; whoever has processed them clears the set."""
        self.listed = False
        """Whether there was a complete list."""
        self._read = read
        self._on_change = on_change

    def collect(self, item: Item, objects: Objects[T]) -> None:
        """Add an object to those that `replace` will get."""
        value, (namespace, name) = self._read(item), _key(item)
        # One that is known stays the same object, which `replace` finds equal at once.
        known = self.objects.get(namespace, {}).get(name)
        objects.setdefault(namespace, {})[name] = value if known != value else known

    def replace(self, objects: Objects[T]) -> None:
        """Replace all objects, by those of a complete list."""
        before, self.objects = self.objects, objects
        self.listed = True
        self._mark(
            namespace
            for namespace in before.keys() | self.objects.keys()
            if before.get(namespace) != self.objects.get(namespace)
        )

    def upsert(self, item: Item) -> bool:
        """Store an object that is new or has changed; return whether it is new."""
        value, (namespace, name) = self._read(item), _key(item)
        known = self.objects.setdefault(namespace, {})
        is_new = name not in known
        if is_new or known[name] != value:
            known[name] = value
            self._mark([namespace])
        return is_new

    def remove(self, item: Item) -> bool:
        """Forget an object; return whether it was known."""
        namespace, name = _key(item)
        known = self.objects.get(namespace, {})
        if known.pop(name, None) is None:
            return False
        if not known:
            del self.objects[namespace]
        self._mark([namespace])
        return True

    def _mark(self, namespaces: Iterable[str]) -> None:
        self.changed.update(namespaces)
        self._on_change()


def _key(item: Item) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name


class Reflector(WatchLoop, Generic[T]):
    """Fills a store with the objects that are listed at `path`, and keeps it up to date.

    With a `selector` such as `spec.nodeName=node-1`, only with those that have these fields.
    Objects of a `namespaced` kind are in namespaces; `cached` is as for `read_pages`. `outage` and
    `recovery` are logged.
    """

    def __init__(
        self,
        path: str,
        client: ClusterClient,
        store: Store[T],
        timing: WatchTiming,
        *,
        outage: str,
        recovery: str,
        selector: str = "",
        namespaced: bool = True,
        cached: bool = False,
    ) -> None:
        self._kind = path.rpartition("/")[2]
        labels = {"kind": self._kind}
        super().__init__(client, labels, timing, outage=outage, recovery=recovery)
        self._selector = selector
        self._namespaced = namespaced
        self._cached = cached
        self.missing = False
        """Whether the API server doesn't know the kind, and no objects of it are known."""
        self._path = path
        self._store = store
        self._received = 0
        """Bytes of the objects that are new since the last list, as `MAX_LIST` counts them."""

    def _watch_request(self) -> tuple[str, dict[str, str | int]]:
        params: dict[str, str | int] = {"fieldSelector": self._selector} if self._selector else {}
        return self._path, {
            **params,
            "resourceVersion": self._version,
            # They update the version while nothing changes: a watch from an old one ends with 410.
            "allowWatchBookmarks": "true",
        }

    async def _read(self, client: ClusterClient) -> float | None:
        """Replace the objects of the store."""
        version, unreadable = "", 0
        self._received = 0
        objects: Objects[T] = {}
        try:
            listing = read_pages(client, self._path, self._selector, cached=self._cached)
            async with aclosing(listing) as pages:
                async for page in pages:
                    version = version or page.metadata.resource_version
                    unreadable += await self._collect(page.items, objects)
        except BadStatus as error:
            if error.status != NOT_FOUND:
                raise
            # A kind that isn't installed has no objects. Where some are known, this is an outage as
            # others are, and they stay in use.
            if not self._store.objects:
                return self._missing_kind()
            advice = f"knows no {self._kind}: install the custom resource definitions"
            raise BadStatus(f"the API server {advice} ({error})", NOT_FOUND) from error
        if not version:
            raise Unreadable(f"the list GET {self._path} has no resource version")
        if unreadable:
            log.warning("objects without a name or not in JSON are ignored", number=unreadable)
        self._store.replace(objects)
        self._version = version
        self.missing = False
        return None

    def _missing_kind(self) -> float:
        """Note that the API server doesn't know the kind; return the seconds until it is asked."""
        if not self.missing:
            log.info("the API server does not know this kind: it has no objects", kind=self._kind)
        self.missing = True
        self._store.replace({})
        return min(MISSING_SECONDS, self._timing.longest)

    async def _collect(self, items: list[msgspec.Raw], objects: Objects[T]) -> int:
        """Add the objects of a page; return how many couldn't be read."""
        unreadable = read = 0
        # One by one, so that a broken one doesn't hide the others.
        for raw in items:
            try:
                self._store.collect(self._item(raw), objects)
            except UNREADABLE:
                unreadable += 1
            read += memoryview(raw).nbytes
            if read > BREATH_BYTES:
                read = 0
                await asyncio.sleep(0)
        return unreadable

    async def _apply(self, client: ClusterClient, event: WatchEvent) -> None:  # noqa: ARG002 - as WatchLoop
        try:
            if event.type == "BOOKMARK":
                self._version = _BOOKMARK.decode(event.object).metadata.resource_version
                return
            item = self._item(event.object)
        except UNREADABLE as error:
            raise unreadable_line(error) from error
        size = memoryview(event.object).nbytes + OBJECT_BYTES
        if event.type == "DELETED":
            if self._store.remove(item):
                self._received = max(0, self._received - size)
        elif self._store.upsert(item):
            self._received += size
            # New objects without an end are as a list without an end.
            if self._received > MAX_LIST:
                raise TooLong(f"the watches of {self._path} have sent too many bytes or objects")
        self._version = item.metadata.resource_version or self._version

    def _item(self, raw: msgspec.Raw) -> Item:
        if memoryview(raw).nbytes > MAX_OBJECT:
            raise ValueError(f"an object of more than {MAX_OBJECT} bytes")
        item = _ITEM.decode(raw)
        if not item.metadata.name or bool(item.metadata.namespace) is not self._namespaced:
            raise ValueError("an object without a name, or not where objects of its kind are")
        return item


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str


class _Bookmark(msgspec.Struct):
    metadata: _Version


_ITEM: Final = msgspec.json.Decoder(Item)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)
