"""Watches: changes since a revision, then new changes, one JSON line each.

A `Watch` is fed by the store and drained by its connection. Tests control open watches through
`send`, `end`, `cut` and `silence`.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Mapping

from simulator.apiserver.http_server import Cut
from simulator.apiserver.reading import predicate_of, revision_of
from simulator.apiserver.resources import Resource, Target
from simulator.apiserver.status import StatusError
from simulator.apiserver.store import Change, Store
from simulator.apiserver.wire import Json, decode, encode


class Watch:
    """One open watch."""

    def __init__(
        self, store: Store, target: Target, query: Mapping[str, str], *, bookmark_interval: float
    ) -> None:
        self.resource = target.resource
        self._store = store
        self._selects = predicate_of(target, query)
        self._prefix = target.prefix
        self._since = revision_of(query)
        self._interval = float("inf")
        if query.get("allowWatchBookmarks") in ("true", "1"):
            self._interval = bookmark_interval
        self._seconds = int(query.get("timeoutSeconds") or 0) or random.randint(1800, 3600)  # noqa: S311 - as a real API server spreads them
        self._lines: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._order = ""

    def end(self) -> None:
        """Ends the answer properly, as when `timeoutSeconds` are over."""
        self._give("end")

    def cut(self) -> None:
        """Drops the connection in the middle of a line."""
        self._give("cut")

    def silence(self) -> None:
        """Keep the connection and send nothing more."""
        self._give("silence")

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
                self._offer(Change("ADDED", path, self._store.revision, data, None))
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
        bookmark = loop.time() + self._interval
        while loop.time() < deadline:
            self._wake.clear()
            if self._order == "cut":
                line = self._lines[0] if self._lines else self._bookmark()
                yield line[: len(line) // 2]
                raise Cut
            if self._order == "silence":
                await self._wake.wait()
                continue
            if self._lines:
                lines = b"".join(self._lines)
                self._lines.clear()
                yield lines
                continue
            if self._order == "end":
                return
            if loop.time() >= bookmark:
                bookmark = loop.time() + self._interval
                yield self._bookmark()
                continue
            try:
                async with asyncio.timeout_at(min(deadline, bookmark)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _offer(self, change: Change) -> None:
        """Queue a change of the store, if it is selected."""
        if not change.path.startswith(self._prefix) or change.revision <= (self._since or 0):
            return
        if self._selects is None:
            self.send(event_line(change.kind, change.data))
            return
        was = change.before is not None and self._selects(decode(change.before))
        now = change.kind != "DELETED" and self._selects(decode(change.data))
        if now:
            self.send(event_line("MODIFIED" if was else "ADDED", change.data))
        elif was and change.before is not None:
            last: Json = decode(change.before)
            last["metadata"]["resourceVersion"] = str(change.revision)
            self.send(event_line("DELETED", self.resource.encode(last)))

    def _bookmark(self) -> bytes:
        return bookmark_line(self.resource, self._store.revision)


def event_line(kind: str, data: bytes) -> bytes:
    """One line of a watch."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), data)


def bookmark_line(resource: Resource, revision: int) -> bytes:
    """The BOOKMARK line of a revision."""
    item: Json = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"resourceVersion": str(revision)},
    }
    return event_line("BOOKMARK", encode(item))
