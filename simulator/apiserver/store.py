"""The objects and their history: one revision counter, the newest state, the last changes.

Everything happens on one event loop and no method awaits: a caller sees and leaves a whole state.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from simulator.apiserver.resources import Json, Resource

HISTORY = 20_000
"""Changes of each resource that can be watched again; what is older gets 410."""
Listener: TypeAlias = "Callable[[Change], None]"


# Characters outside ASCII stay raw, as a real API server sends them: U+0085 too, which clients that
# split a watch with `str.splitlines` trip over.
encode = msgspec.json.encode


def decode(data: bytes) -> Any:  # noqa: ANN401 - JSON of any kind
    """Decode JSON. Raises msgspec.DecodeError, whose text says what is wrong and where."""
    return msgspec.json.decode(data)


def timestamp(moment: datetime | None = None) -> str:
    """A time, by default now, as the API writes it: RFC 3339 in whole seconds."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamped(metadata: Json) -> Json:
    """Metadata with what every object gets when it is created, unless it is there."""
    return {"uid": str(uuid4()), "creationTimestamp": timestamp(), "generation": 1} | metadata


def event_on(metadata: Json, name: str, what: Json, at: str, field_path: str = "") -> Json:
    """An Event on the pod with this metadata; `what` has type, reason, message and source."""
    named = {key: metadata[key] for key in ("namespace", "name", "uid")}
    involved = {"apiVersion": "v1", "kind": "Pod"} | named
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{name}", "namespace": metadata["namespace"]},
        "involvedObject": involved | ({"fieldPath": field_path} if field_path else {}),
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    } | what


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    """`ADDED`, `MODIFIED` or `DELETED`."""
    path: str
    """`namespace/name`, or the name."""
    revision: int
    """The store's revision after it."""
    data: bytes
    """The object after it (at a deletion: as it was, with the deletion's revision)."""


class Shelf:
    """The objects of one resource by their paths, and their last changes."""

    def __init__(self, revision: int) -> None:
        # As the bytes that are sent: a list is a join, a watch event is ready when it happens.
        self.objects: dict[str, bytes] = {}
        self.changes: deque[Change] = deque()
        self.listeners: list[Listener] = []
        self.oldest = revision
        """Watches and lists may be taken up at this revision or later."""

    def remember(self, change: Change) -> None:
        self.changes.append(change)
        if len(self.changes) > HISTORY:
            self.oldest = self.changes.popleft().revision
        for listener in tuple(self.listeners):
            listener(change)

    def forget(self, revision: int) -> None:
        self.changes.clear()
        self.oldest = revision


class Store:
    def __init__(self) -> None:
        self.revision = self._first = 1
        self._shelves: dict[tuple[str, str], Shelf] = {}

    def shelf(self, resource: Resource) -> Shelf:
        """The shelf of a resource, made when it is first asked for."""
        if resource.key not in self._shelves:
            self._shelves[resource.key] = Shelf(self._first)
        return self._shelves[resource.key]

    def get(self, resource: Resource, path: str) -> Json | None:
        """A copy of an object of one's own, or None."""
        data = self.shelf(resource).objects.get(path)
        return None if data is None else decode(data)

    def all(self, resource: Resource, namespace: str = "") -> Iterator[Json]:
        """Copies of all objects of a resource, or of those in one namespace, in order."""
        prefix = f"{namespace}/" if namespace else ""
        for path, data in sorted(self.shelf(resource).objects.items()):
            if path.startswith(prefix):
                yield decode(data)

    def write(self, resource: Resource, item: Json) -> Json:
        """Create or replace an object under the next revision, and return it as stored."""
        shelf, path = self.shelf(resource), resource.path_of(item)
        kind = "MODIFIED" if path in shelf.objects else "ADDED"
        data = shelf.objects[path] = self._under_next_revision(item)
        shelf.remember(Change(kind, path, self.revision, data))
        return item

    def remove(self, resource: Resource, path: str) -> Json:
        """Delete an object under the next revision, and return what it was."""
        shelf = self.shelf(resource)
        item: Json = decode(shelf.objects.pop(path))
        data = self._under_next_revision(item)
        shelf.remember(Change("DELETED", path, self.revision, data))
        return item

    def compact(self) -> None:
        """Forget the past: watches and lists of any older revision are answered with 410."""
        self.revision += 1
        self._first = self.revision
        for shelf in self._shelves.values():
            shelf.forget(self.revision)

    def listen(self, resource: Resource, listener: Listener) -> Callable[[], None]:
        """Call `listener` at each change of a resource until the returned function is called."""
        listeners = self.shelf(resource).listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def _under_next_revision(self, item: Json) -> bytes:
        self.revision += 1
        item["metadata"]["resourceVersion"] = str(self.revision)
        return encode(item)
