"""Lists and watches: pages, changes since a revision, and selectors (`=`, `==` and `!=`).

A `Watch` is fed by the store and drained by its connection. Tests control open watches through
`send`, `end` and `cut`.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TypeAlias

from simulator.apiserver.calls import StatusError, bad_request
from simulator.apiserver.http_server import Cut
from simulator.apiserver.resources import Json, Resource, Target
from simulator.apiserver.store import Change, Store, decode, encode
from simulator.apiserver.tables import table_of

Predicate: TypeAlias = Callable[[Json], bool]

# Lists


def read_list(store: Store, target: Target, query: Mapping[str, str], *, as_table: bool) -> bytes:
    shelf = store.shelf(target.resource)
    limit = int(query.get("limit") or 0)
    revision, start = store.revision, ""
    # Later pages have the revision of the first, and show objects as they are now.
    if token := query.get("continue"):  # which we gave: a revision, and the last path of the page
        text, _, start = token.partition(" ")
        revision = int(text)
    if revision < shelf.oldest:
        message = "The provided continue parameter is too old to display a consistent list result."
        raise StatusError(410, message)
    selects, objects = predicate_of(target, query), shelf.objects
    paths = [
        path
        for path, data in sorted(objects.items())
        if path > start and path.startswith(target.prefix)
        if selects is None or selects(decode(data))
    ]
    metadata: Json = {"resourceVersion": str(revision), "continue": ""}
    if limit and len(paths) > limit:
        metadata["continue"] = f"{revision} {paths[limit - 1]}"
        paths = paths[:limit]
    if as_table:
        listed = (decode(objects[path]) for path in paths)
        return encode(table_of(target.resource, listed, metadata))
    kind, version = f"{target.resource.kind}List", target.resource.api_version
    head = encode({"kind": kind, "apiVersion": version, "metadata": metadata})
    items = b",".join(objects[path] for path in paths)
    return b'%s,"items":[%s]}' % (head[:-1], items)


# Selectors


def predicate_of(target: Target, query: Mapping[str, str]) -> Predicate | None:
    """The selection of a list or watch besides its namespace; None for everything."""
    tests = [
        _field_term(term.strip(), target.resource)
        for term in query.get("fieldSelector", "").split(",")
        if term
    ]
    tests += [
        _label_term(term.strip()) for term in query.get("labelSelector", "").split(",") if term
    ]
    if not tests:
        return None
    return lambda item: all(test(item) for test in tests)


def _label_term(term: str) -> Predicate:
    name, value, equal = _comparison(term)
    return lambda item: (labels_of(item).get(name) == value) is equal


def _field_term(term: str, resource: Resource) -> Predicate:
    path, wanted, equal = _comparison(term)
    # As a real API server, which knows few fields of each kind.
    if path not in resource.selectable and path not in ("metadata.name", "metadata.namespace"):
        raise bad_request(f"field label not supported: {path}")
    return lambda item: (_value_at(item, path) == wanted) is equal


def _comparison(term: str) -> tuple[str, str, bool]:
    name, _, value = term.replace("!=", "=").replace("==", "=").partition("=")
    return name, value, "!=" not in term


def _value_at(item: Json, path: str) -> str:
    value: object = item
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def labels_of(item: Json | None) -> Mapping[str, str]:
    return (item or {}).get("metadata", {}).get("labels") or {}


# Watches


class Watch:
    def __init__(self, store: Store, target: Target, query: Mapping[str, str]) -> None:
        self.resource = target.resource
        self._store = store
        self._selects = predicate_of(target, query)
        self._prefix = target.prefix
        self._since = int(query.get("resourceVersion") or 0) or None  # 0: whatever is there
        self._seconds = int(query.get("timeoutSeconds") or 0) or random.randint(1800, 3600)  # noqa: S311 - as a real API server spreads them
        self._lines: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._order = ""

    def end(self) -> None:
        """End the answer properly, as when `timeoutSeconds` are over."""
        self._give("end")

    def cut(self) -> None:
        """Drop the connection in the middle of a line."""
        self._give("cut")

    def send(self, line: bytes) -> None:
        """Send a line of any kind, unless the watch is about to end."""
        if not self._order:
            self._lines.append(line)
            self._wake.set()

    def _give(self, order: str) -> None:
        self._order = order
        self._wake.set()

    async def stream(self) -> AsyncGenerator[bytes]:
        """The answer's pieces: lines, joined where many are ready at once."""
        shelf = self._store.shelf(self.resource)
        if self._since is not None and self._since < shelf.oldest:
            error = StatusError(410, f"too old resource version: {self._since} ({shelf.oldest})")
            yield event_line("ERROR", encode(error.status()))
            return
        if self._since is None:
            for path, data in sorted(shelf.objects.items()):
                self._offer(Change("ADDED", path, self._store.revision, data))
        else:
            for change in shelf.changes:
                self._offer(change)
        stop_listening = self._store.listen(self.resource, self._offer)
        try:
            async for piece in self._pieces():
                yield piece
        finally:
            stop_listening()

    async def _pieces(self) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        while loop.time() < deadline:
            self._wake.clear()
            if self._order == "cut":
                own = bookmark_line(self.resource, self._store.revision)
                line = self._lines[0] if self._lines else own
                yield line[: len(line) // 2]
                raise Cut
            if self._lines:
                lines = b"".join(self._lines)
                self._lines.clear()
                yield lines
                continue
            if self._order == "end":
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()

    def _offer(self, change: Change) -> None:
        if not change.path.startswith(self._prefix) or change.revision <= (self._since or 0):
            return
        if self._selects is None or self._selects(decode(change.data)):
            self.send(event_line(change.kind, change.data))


def event_line(kind: str, data: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), data)


def bookmark_line(resource: Resource, revision: int) -> bytes:
    item: Json = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"resourceVersion": str(revision)},
    }
    return event_line("BOOKMARK", encode(item))
