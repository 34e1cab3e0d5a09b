"""Watches: changes since a revision, then new changes, one JSON line each.

A `Watch` is fed by the store and drained by its connection. Between the two stands a queue of
lines that are ready to send; a client so slow that it overflows is cut off, as by a real API
server. Tests control open watches through `end`, `cut` and `silence`.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Mapping

from simulator.apiserver import reading, status, wire
from simulator.apiserver.http_server import Cut
from simulator.apiserver.paths import Target
from simulator.apiserver.resources import Resource
from simulator.apiserver.selectors import Predicate
from simulator.apiserver.store import Change, Store, event_line
from simulator.apiserver.wire import Json

BUFFER = 100_000
"""Lines that may wait for a slow client."""
_BATCH = 512
_GRACE = 2.0
"""Seconds before the end at which a last bookmark is sent."""


class Watch:
    """One open watch."""

    def __init__(
        self, store: Store, target: Target, query: Mapping[str, str], *, bookmark_interval: float
    ) -> None:
        self.target = target
        self._store = store
        self._predicate: Predicate | None = reading.predicate_of(target, query)
        self._prefix = f"{target.namespace}/" if target.namespace else ""
        self._since = reading.revision_of(query)
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._interval = bookmark_interval
        seconds = query.get("timeoutSeconds", "")
        self._seconds = int(seconds) if seconds.isdigit() and int(seconds) else _any_timeout()
        self._lines: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._order = ""
        self._error: status.StatusError | None = None
        self.bookmarks_without_version = self._bookmarks and not query.get("resourceVersion")

    @property
    def too_old(self) -> status.StatusError | None:
        """The error of a watch whose revision is forgotten; None where it can be taken up."""
        oldest = self._store.shelf(self.target.resource).oldest
        if self._since is None or self._since >= oldest:
            return None
        return status.expired(f"too old resource version: {self._since} ({oldest})")

    def end(self) -> None:
        """Ends the answer properly, as when `timeoutSeconds` are over."""
        self._give("end")

    def fail(self, error: status.StatusError) -> None:
        """Send only an ERROR event; call it before `stream`."""
        self._error = error

    def cut(self) -> None:
        """Drops the connection in the middle of a line."""
        self._give("cut")

    def silence(self) -> None:
        """Keep the connection and send nothing more."""
        self._give("silence")

    def _give(self, order: str) -> None:
        self._order = order
        self._wake.set()

    async def stream(self) -> AsyncGenerator[bytes]:
        """The answer's pieces: lines, joined where many are ready at once."""
        if (error := self._error or self.too_old) is not None:
            yield event_line("ERROR", wire.encode(error.status()))
            return
        self._begin()
        stop_listening = self._store.listen(self.target.resource, self.offer)
        try:
            async for piece in self._pieces():
                yield piece
        finally:
            stop_listening()

    def _begin(self) -> None:
        shelf = self._store.shelf(self.target.resource)
        if self._since is not None:
            for change in shelf.since(self._since):
                self.offer(change)
            return
        for path in shelf.paths:
            data = shelf.objects[path]
            if path.startswith(self._prefix) and self._selects(data):
                self._lines.append(event_line("ADDED", data))

    async def _pieces(self) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        bookmark = loop.time() + min(self._interval, max(self._seconds - _GRACE, 0))
        while self._order != "end":
            self._wake.clear()
            if self._order == "silence":
                await self._wake.wait()
                continue
            if self._order == "cut":
                line = self._lines[0] if self._lines else self._bookmark()
                yield line[: len(line) // 2]
                raise Cut
            while self._lines and not self._order:
                yield self._take()
            if loop.time() >= deadline:
                return
            if self._bookmarks and loop.time() >= bookmark:
                yield self._bookmark()
                bookmark = _next_bookmark(loop.time(), self._interval, deadline)
            await self._sleep(min(deadline, bookmark if self._bookmarks else deadline))

    def _take(self) -> bytes:
        count = min(len(self._lines), _BATCH)
        return b"".join(self._lines.popleft() for _ in range(count))

    async def _sleep(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            return

    def offer(self, change: Change) -> None:
        """Queue a change of the store, if it is selected."""
        if not change.path.startswith(self._prefix) or change.revision <= (self._since or 0):
            return
        line = change.as_line() if self._predicate is None else self._selected_line(change)
        if line is None:
            return
        if len(self._lines) >= BUFFER:
            self._give("end")
            return
        self._lines.append(line)
        self._wake.set()

    def _selected_line(self, change: Change) -> bytes | None:
        was = change.before is not None and self._selects(change.before)
        now = change.kind != "DELETED" and self._selects(change.data)
        if now:
            return event_line("MODIFIED" if was else "ADDED", change.data)
        if not was or change.before is None:
            return None
        last: Json = wire.decode(change.before)
        last["metadata"]["resourceVersion"] = str(change.revision)
        return event_line("DELETED", change.resource.encode(last))

    def _selects(self, data: bytes) -> bool:
        return self._predicate is None or self._predicate(wire.decode(data))

    def _bookmark(self) -> bytes:
        return bookmark_line(self.target.resource, self._store.revision)


def bookmark_line(resource: Resource, revision: int) -> bytes:
    """The BOOKMARK line of a revision."""
    item: Json = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"resourceVersion": str(revision)},
    }
    if not resource.custom:
        item = {"kind": item["kind"]} | item
        item |= resource.empty
    return event_line("BOOKMARK", wire.encode(item))


def _any_timeout() -> int:
    return random.randint(1800, 3600)  # noqa: S311 - as a real API server spreads them


def _next_bookmark(now: float, interval: float, deadline: float) -> float:
    if now < deadline - _GRACE < now + interval:
        return deadline - _GRACE
    return now + interval
