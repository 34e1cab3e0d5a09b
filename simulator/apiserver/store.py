"""The objects and their history: one revision counter, the newest state, the last changes.

An object is kept as the bytes in which it is sent, so a list is a join and a watch event is ready
when it happens; whoever needs to look inside decodes it. A change is remembered with what stood
there before, so that a paged list can go on at the revision at which it began, and a watch can be
taken up again. What is forgotten (`history` changes a resource, or `compact`) is answered with 410.

Everything happens on one event loop and no method awaits: a caller sees and leaves a whole state.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from simulator.apiserver import wire
from simulator.apiserver.resources import Resource
from simulator.apiserver.wire import Json

KEPT_SNAPSHOTS = 4
"""Old states kept for the next pages of lists that began at them."""
Listener: TypeAlias = "Callable[[Change], None]"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object.

    Args:
        kind: `ADDED`, `MODIFIED` or `DELETED`.
        resource: what it is.
        path: `namespace/name`, or the name.
        revision: the store's revision after it.
        data: the object after it (at a deletion: as it was, with the deletion's revision).
        before: the object before it, None at a creation.
    """

    kind: str
    resource: Resource
    path: str
    revision: int
    data: bytes
    before: bytes | None
    line: list[bytes] = field(default_factory=list, compare=False, repr=False)

    def as_line(self) -> bytes:
        """The change as a line of a watch; encoded once for all watchers."""
        if not self.line:
            self.line.append(event_line(self.kind, self.data))
        return self.line[0]


def event_line(kind: str, data: bytes) -> bytes:
    """One line of a watch."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), data)


class Shelf:
    """The objects of one resource, in the order of their paths, and their last changes."""

    def __init__(self, resource: Resource, history: int, revision: int) -> None:
        self.resource = resource
        self.objects: dict[str, bytes] = {}
        self.paths: list[str] = []
        self.changes: deque[Change] = deque()
        self.listeners: list[Listener] = []
        self.oldest = revision
        """Watches and lists may be taken up at this revision or later."""
        self._history = history
        self._unsent: deque[Change] = deque()
        self._notifying = False
        self._snapshots: dict[int, tuple[list[str], dict[str, bytes]]] = {}

    def put(self, path: str, data: bytes) -> None:
        """Places or replaces an object."""
        if path not in self.objects:
            if not self.paths or path > self.paths[-1]:
                self.paths.append(path)
            else:
                insort(self.paths, path)
        self.objects[path] = data

    def drop(self, path: str) -> None:
        """Remove an object."""
        del self.objects[path]
        del self.paths[bisect_left(self.paths, path)]

    def remember(self, change: Change) -> None:
        """Keep a change, and call the listeners."""
        self.changes.append(change)
        while len(self.changes) > self._history:
            self.oldest = self.changes.popleft().revision
        self._unsent.append(change)
        if not self._notifying:
            self._notify()

    def _notify(self) -> None:
        """Call listeners with one change after the other, those that a listener makes last."""
        self._notifying = True
        try:
            while self._unsent:
                change = self._unsent.popleft()
                for listener in tuple(self.listeners):
                    listener(change)
        finally:
            self._notifying = False

    def forget(self, revision: int) -> None:
        """Forgets the changes up to a revision."""
        while self.changes and self.changes[0].revision <= revision:
            self.changes.popleft()
        self.oldest = max(self.oldest, revision)
        self._snapshots.clear()

    def since(self, revision: int) -> list[Change]:
        """The changes after a revision, oldest first."""
        newer: list[Change] = []
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            newer.append(change)
        newer.reverse()
        return newer

    def at(self, revision: int) -> tuple[list[str], dict[str, bytes]]:
        """Paths in order and objects as they were at a revision."""
        if not self.changes or self.changes[-1].revision <= revision:
            return self.paths, self.objects
        if revision not in self._snapshots:
            objects = dict(self.objects)
            for change in reversed(self.since(revision)):
                if change.before is None:
                    objects.pop(change.path, None)
                else:
                    objects[change.path] = change.before
            while len(self._snapshots) >= KEPT_SNAPSHOTS:
                self._snapshots.pop(next(iter(self._snapshots)))
            self._snapshots[revision] = sorted(objects), objects
        return self._snapshots[revision]


class Store:
    """All objects, by resource."""

    def __init__(self, *, history: int = 20_000, revision: int = 1) -> None:
        self.revision = revision
        self._history = history
        self._shelves: dict[tuple[str, str], Shelf] = {}

    def shelf(self, resource: Resource) -> Shelf:
        """The shelf of a resource, made when it is first asked for."""
        found = self._shelves.get(resource.key)
        if found is None:
            found = Shelf(resource, self._history, self.revision)
            self._shelves[resource.key] = found
        return found

    def get(self, resource: Resource, path: str) -> Json | None:
        """A copy of an object of one's own, or None."""
        data = self.shelf(resource).objects.get(path)
        return None if data is None else wire.decode(data)

    def all(self, resource: Resource, namespace: str = "") -> Iterator[Json]:
        """Copies of all objects of a resource, or of those in one namespace, in order."""
        shelf = self.shelf(resource)
        prefix = f"{namespace}/" if namespace else ""
        for path in tuple(shelf.paths):
            if path.startswith(prefix) and path in shelf.objects:
                yield wire.decode(shelf.objects[path])

    def write(self, resource: Resource, item: Json) -> Json:
        """Creates or replaces an object under the next revision, and returns it as stored."""
        shelf = self.shelf(resource)
        path = path_of(resource, item)
        before = shelf.objects.get(path)
        self.revision += 1
        item["metadata"]["resourceVersion"] = str(self.revision)
        data = resource.encode(item)
        shelf.put(path, data)
        kind = "ADDED" if before is None else "MODIFIED"
        shelf.remember(Change(kind, resource, path, self.revision, data, before))
        return item

    def remove(self, resource: Resource, path: str) -> Json:
        """Deletes an object under the next revision, and returns what it was."""
        shelf = self.shelf(resource)
        before = shelf.objects[path]
        item: Json = wire.decode(before)
        self.revision += 1
        item["metadata"]["resourceVersion"] = str(self.revision)
        data = resource.encode(item)
        shelf.drop(path)
        shelf.remember(Change("DELETED", resource, path, self.revision, data, before))
        return item

    def seed(self, resource: Resource, item: Json) -> None:
        """Puts an object there as it is, unchecked and without history, as if it had been there.

        Its resource version, if it has one, is kept; the counter never goes back.
        """
        metadata = item["metadata"]
        if "resourceVersion" not in metadata:
            metadata["resourceVersion"] = str(self.revision + 1)
        self.revision = max(self.revision, int(metadata["resourceVersion"]))
        shelf = self.shelf(resource)
        shelf.put(path_of(resource, item), resource.encode(item))
        shelf.forget(self.revision)

    def advance(self, revision: int) -> None:
        """Advance the counter, as writes of other resources do."""
        self.revision = max(self.revision, revision)

    def compact(self) -> None:
        """Forgets the past: watches and lists of any older revision are answered with 410."""
        self.revision += 1
        for shelf in self._shelves.values():
            shelf.forget(self.revision)

    def listen(self, resource: Resource, listener: Listener) -> Callable[[], None]:
        """Call `listener` at each change of a resource until the returned function is called."""
        listeners = self.shelf(resource).listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener)


def path_of(resource: Resource, item: Json) -> str:
    """The path of an object."""
    metadata = item["metadata"]
    return resource.path(metadata.get("namespace", ""), metadata["name"])
