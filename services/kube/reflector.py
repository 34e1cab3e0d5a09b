"""Keeps a store up to date with the objects of one kind, in all namespaces or of the cluster.

By list and watch, as kubernetes.io/docs/reference/using-api/api-concepts describes it.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Final, Generic, NoReturn, TypeAlias, TypeVar

import msgspec
import structlog

from services.kube.client import (
    MAX_OBJECT,
    NOT_FOUND,
    BadStatus,
    ClusterClient,
    TooLong,
    Unreadable,
    requested_pause,
)
from services.kube.lists import MAX_LIST, OBJECT_BYTES, read_pages
from services.kube.watches import WatchEvent, WatchTiming, read_line, unreadable_line
from services.process.errors import ClusterError
from services.process.json import UNREADABLE
from services.process.outage import Outage

T = TypeVar("T")

MISSING_SECONDS: Final = 30.0
"""After this time a kind that the API server doesn't know is asked for again."""
BREATH_BYTES: Final = 32 * 1024
"""Bytes of a page that are read before other tasks run."""

# How fast pauses grow while watches fail. Each attempt costs two requests: a list and a watch.
_WATCH_GROWTH: Final = 10.0
# The part of its time after which a watch has ended on time.
_FULL: Final = 0.9

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


class Reflector(Generic[T]):
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
        self._path = path
        self._client = client
        self._store = store
        self._selector = selector
        self._namespaced = namespaced
        self._cached = cached
        self._timing = timing
        self._clock = timing.clock
        self._backoff = timing.backoff()
        self._outage = Outage(log, outage, recovery, clock=timing.clock, kind=self._kind)
        self.missing = False
        """Whether the API server doesn't know the kind, and no objects of it are known."""
        # A watch that only opens proves nothing.
        self.last_seen = self._clock()
        """The time of the last event, bookmark, complete read or watch of full length; initially
        the start."""
        self._version = ""
        """The version to watch from; empty if the objects must be read."""
        self._received = 0
        """Bytes of the objects that are new since the last list, as `MAX_LIST` counts them."""
        self._opened: float | None = None
        """When the open watch began, if there is one."""
        self._watch_broken = False
        """Whether a watch has failed since watching worked."""

    @property
    def error(self) -> str:
        """Why the objects aren't being updated now; empty if they are."""
        return self._outage.reason

    @property
    def failures(self) -> int:
        """How often a read or a watch has failed."""
        return self._outage.failures

    @property
    def watching(self) -> bool:
        """Whether a watch is open."""
        return self._opened is not None

    async def watch_forever(self) -> NoReturn:
        """Keep the objects up to date until cancelled."""
        while True:
            await self._timing.sleep(await self._attempt())

    async def _attempt(self) -> float:
        """Read if necessary, then watch once; return the seconds until the next attempt."""
        requested: float | None = None  # when the watch was
        try:
            if not self._version:
                began = self._clock()
                pause = await self._read()
                self._read_works(began)
                if pause is not None:  # there is nothing to watch
                    self._watch_works()
                    return pause
            requested = self._clock()
            full = await self._watch()
            # Continued at once from where it was; after every other end the objects are read again,
            # after a pause.
            if full:
                self._watch_works()
                return 0.0
            return self._watch_failed(ClusterError("the API server ends watches early"), requested)
        except ClusterError as error:
            if requested is None:
                return self._read_failed(error)
            return self._watch_failed(error, requested)
        except Exception:
            # An error of ours must not end the loop: nobody would update the objects any more.
            log.exception("internal error: the objects are read again", kind=self._kind)
            self._version, self._watch_broken = "", True
            self._outage.failed("internal error")
            return self._backoff.pause()
        finally:
            self._opened = None

    async def _watch(self) -> bool:
        """Apply events until the server ends the watch; return whether it ended on time."""
        # Up to a quarter shorter, so that the watches of many processes don't end together.
        seconds = max(1, round(self._timing.watch * (3 + self._timing.jitter()) / 4))
        params: dict[str, str | int] = {
            "watch": 1,
            **({"fieldSelector": self._selector} if self._selector else {}),
            "resourceVersion": self._version,
            # They update the version while nothing changes: a watch from an old one ends with 410.
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }
        longest = seconds + self._timing.grace
        async with self._client.lines(self._path, params, seconds=longest) as lines:
            self._opened = self._clock()
            async for line in lines:
                if not line:
                    continue
                self._apply(await read_line(line))
                self.last_seen = self._clock()
                # Not with the first event: watches that only ever send one would seem to work.
                if self._open_seconds >= self._timing.steady:
                    self._watch_works()
        return self._open_seconds >= _FULL * seconds

    @property
    def _open_seconds(self) -> float:
        return 0.0 if self._opened is None else self._clock() - self._opened

    def _watch_works(self) -> None:
        """Note an event of a steady watch, a watch of full length, or that none is needed."""
        self.last_seen = self._clock()
        self._watch_broken = False
        self._backoff.reset()
        self._outage.ended()

    def _read_works(self, began: float) -> None:
        # What it shows is as old as its request, or younger.
        self.last_seen = max(self.last_seen, began)
        # While watches fail, a read alone is no recovery.
        if not self._watch_broken:
            self._outage.ended()

    def _read_failed(self, error: ClusterError) -> float:
        pause = self._backoff.pause(requested_pause(error))
        self._failed(error, pause)
        return pause

    def _watch_failed(self, error: ClusterError, requested: float) -> float:
        self._version = ""  # events may be missing
        self._watch_broken = True
        # A load balancer may cut each watch that is silent for half a minute.
        if self._open_seconds >= self._timing.steady:
            self._backoff.reset()
        pause = self._backoff.pause(requested_pause(error), growth=_WATCH_GROWTH)
        self._failed(error, pause)
        # From when it was requested, so that the time of a hanging watch isn't added.
        return max(min(pause, self._timing.first), pause - (self._clock() - requested))

    def _failed(self, error: ClusterError, pause: float) -> None:
        age = round(self._clock() - self.last_seen, 1)
        self._outage.failed(str(error), age=age, next_try=round(pause, 1))

    async def _read(self) -> float | None:
        """Replace the objects of the store; return the seconds to wait, if there is no watch."""
        version, unreadable = "", 0
        self._received = 0
        objects: Objects[T] = {}
        try:
            listing = read_pages(self._client, self._path, self._selector, cached=self._cached)
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

    def _apply(self, event: WatchEvent) -> None:
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
