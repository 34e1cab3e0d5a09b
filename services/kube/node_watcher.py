"""Watches the annotations of one node through all outages.

The node is read with `get`, then watched until the server ends the watch, and so on. This needs the
verbs `get` and `watch` of nodes. Without `watch` the node is polled, and a watch is tried again
from time to time.

The watch is opened with `resourceVersion=0` and without bookmarks: it starts with the node in the
API server's cache. The version in a node's metadata may be too old to watch from. Bookmarks without
a version would make a 1.36 API server turn the watch into a list and a watch, which fails where the
storage can't serve progress requests.

The cache may lag behind what `get` has returned, so the annotations of an event aren't used, and no
versions are compared: an event whose annotations differ from the known ones causes another read, at
most every `READ_SECONDS`.

A watch that hangs, without an answer or without an end, is cut after its time and has failed. A
pause counts from the request of the watch, so the time of a hanging watch is not added to it.

The field selector `metadata.name` restricts the watch to this node, which a role with
`resourceNames` requires too.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NoReturn, TypeVar
from urllib.parse import quote

import msgspec
import structlog

from services.kube.client import (
    FORBIDDEN,
    BadStatus,
    ClusterClient,
    Dropped,
    may_be_ours,
    requested_pause,
)
from services.kube.connection import Connection
from services.kube.list_watch import (
    UNREADABLE,
    WATCH_GROWTH,
    Line,
    WatchTimeouts,
    is_full,
    read_watch_error,
)
from services.process.errors import ClusterError
from services.process.retry import GROWTH
from services.process.text import plain

NODES: Final = "/api/v1/nodes"

POLL_SECONDS: Final = 10.0
"""Between two reads where watching is forbidden, or while the node doesn't exist."""

READ_SECONDS: Final = 5.0
"""Between two reads that events of one watch cause: a cache may lag behind for long."""

FORBIDDEN_SECONDS: Final = 600.0
"""Between two attempts to watch where it is forbidden."""

log = structlog.get_logger(room="node")


class NodeWatcher:
    """Reports the annotations of a node, at the start and after each change.

    `on_change` gets the annotations, or None if the API server answers without them. `on_failure`
    is called for each read or watch that fails. `clock` is monotonic, `jitter` returns numbers from
    0 to 1.
    """

    def __init__(
        self,
        name: str,
        connection: Connection,
        on_change: Callable[[Mapping[str, str] | None], None],
        *,
        timeouts: WatchTimeouts | None = None,
        on_failure: Callable[[], None] = lambda: None,
        poll_seconds: float = POLL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.error = ""
        """Why the node can't be read now; empty if it can."""
        self.watch_error = ""
        """Why it can't be watched, although it can be read; empty if it can."""
        self._name = name
        self._path = f"{NODES}/{quote(name, safe='')}"
        self._connection = connection
        self._on_change = on_change
        self._on_failure = on_failure
        self._timeouts = timeouts or WatchTimeouts()
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._backoff = self._timeouts.backoff(jitter)
        self._known: Mapping[str, str] | None = None
        self._opened: float | None = None
        self._excused = False
        """Whether a watch ended early since the last full one; the first early end is no error."""
        self._no_watch_before = clock()
        self._polls = False

    @property
    def watching(self) -> bool:
        """Whether a watch is open."""
        return self._opened is not None

    async def watch_forever(self) -> NoReturn:
        """Watch the node until cancelled."""
        while True:
            await self._sleep(await self._attempt())

    async def _attempt(self) -> float:
        """Read the node and watch it once; return the seconds until the next attempt."""
        try:
            async with self._connection.client() as client:
                try:
                    if not await self._read(client) or self._clock() < self._no_watch_before:
                        return self._poll()
                except ClusterError as error:
                    return await self._read_failed(client, error)
                return await self._follow(client)
        except Exception:
            log.exception("internal error: the node is read again", node=self._name)
            self._on_failure()
            return self._backoff.pause()

    async def _follow(self, client: ClusterClient) -> float:
        """Watch the node once; return the seconds until the next attempt."""
        seconds = self._timeouts.next_watch(self._jitter)
        error: ClusterError | None = None
        began = self._clock()
        try:
            await self._watch(client, seconds)
        except ClusterError as raised:
            if isinstance(raised, BadStatus) and raised.status == FORBIDDEN:
                return self._watch_forbidden(raised)
            error = raised
        ended = self._clock()
        held, self._opened = 0.0 if self._opened is None else ended - self._opened, None
        if error is None and is_full(seconds, held):
            self._watch_works()
            return 0.0
        steady = held >= self._timeouts.steady
        pause = await self._watch_failed(client, error, steady=steady)
        return max(min(pause, self._timeouts.first), pause - (self._clock() - began))

    async def _read(self, client: ClusterClient) -> bool:
        """Read the node and report its annotations; return whether there is one."""
        body = await client.get(self._path)
        if body is None:
            self._log_error(
                f'the API server has no node "{self._name}": set --node-name to the name of this'
                " node in kubectl get nodes"
            )
            self._known = None
            self._on_change(None)
            return False
        self._known = annotations = self._annotations(_decoded(_NODE, body))
        if self.error:
            log.info("the node's annotations can be read again", node=self._name)
        self.error = ""
        self._on_change(annotations)
        return True

    async def _watch(self, client: ClusterClient, seconds: int) -> None:
        """Read the node after each change until the server ends the watch.

        Raises:
            ClusterError: The watch or a read failed, or the node is gone.
        """
        params: dict[str, str | int] = {
            "watch": 1,
            "fieldSelector": f"metadata.name={self._name}",
            "resourceVersion": 0,
            "timeoutSeconds": seconds,
        }
        total = seconds + self._timeouts.grace
        read_after = 0.0
        async with client.lines(NODES, params, seconds=total) as lines:
            self._opened = self._clock()
            async for line in lines:
                if line and self._differs(_decoded(_LINE, line)):
                    await self._sleep(max(0.0, read_after - self._clock()))
                    await self._read(client)
                    read_after = self._clock() + READ_SECONDS

    def _differs(self, line: Line) -> bool:
        """Whether the annotations in a line of the watch differ from those of the last read.

        Raises:
            ClusterError: It is an error, or can't be read.
        """
        if line.type in ("ADDED", "MODIFIED"):
            return self._annotations(_decoded(_NODE, line.object)) != self._known
        if line.type == "ERROR":
            try:
                raise read_watch_error(line.object)
            except UNREADABLE as error:
                raise _Ended(f"the watch of node {self._name} ended with an error") from error
        raise _Ended(f"the watch of node {self._name} ended with {plain(line.type, 40)}")

    def _annotations(self, node: "_Node") -> Mapping[str, str]:
        if node.metadata.name != self._name:
            raise ClusterError(f"asked for node {self._name}, got {plain(node.metadata.name, 80)}")
        return node.metadata.annotations or {}

    def _poll(self) -> float:
        self._backoff.reset()
        return self._poll_seconds * (3 + self._jitter()) / 4

    def _watch_forbidden(self, error: BadStatus) -> float:
        """Poll from now on; return the seconds until the next read."""
        self._no_watch_before = self._clock() + FORBIDDEN_SECONDS
        write_log = log.debug if self._polls else log.info
        write_log(
            "watching the node is forbidden, so it is polled; to see changes at once, allow `watch`"
            " of nodes",
            node=self._name,
            seconds=self._poll_seconds,
            reason=str(error),
        )
        self._polls = True
        return self._poll()

    async def _read_failed(self, client: ClusterClient, error: ClusterError) -> float:
        """Note a read that failed; return the seconds to wait."""
        self._on_failure()
        self._log_error(str(error))
        if isinstance(error, BadStatus):
            self._on_change(None)
        return await self._paused(client, error, GROWTH)

    async def _watch_failed(
        self, client: ClusterClient, error: ClusterError | None, *, steady: bool
    ) -> float:
        """Note a watch that failed, without an `error` by ending early; return the seconds to wait.

        `steady`: it was open for long.
        """
        self._on_failure()
        if steady:
            self._backoff.reset()
        # Watches of healthy servers end early or are cut too, but rarely.
        excused = not self._excused and (error is None or isinstance(error, (_Ended, Dropped)))
        self._excused = self._excused or excused
        error = error or _Ended("the watch ended early")
        if not excused:
            write_log = log.debug if self.watch_error else log.warning
            write_log(
                "the node can't be watched, so it is polled",
                node=self._name,
                problem=str(error),
            )
            self.watch_error = str(error)
        return await self._paused(client, error, WATCH_GROWTH)

    async def _paused(self, client: ClusterClient, error: ClusterError, growth: float) -> float:
        if may_be_ours(error):
            await self._connection.renew(client)
        return self._backoff.pause(requested_pause(error), growth=growth)

    def _log_error(self, error: str) -> None:
        write_log = log.debug if self.error else log.warning
        write_log("the node's annotations can't be read", node=self._name, problem=error)
        self.error = error

    def _watch_works(self) -> None:
        if self.watch_error:
            log.info("the node can be watched again", node=self._name)
        self.watch_error = ""
        self._excused = False
        self._backoff.reset()


class _Ended(ClusterError):
    """A watch that ended; the node must be read again."""


class _Metadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata


T = TypeVar("T")

_NODE: Final = msgspec.json.Decoder(_Node)
_LINE: Final = msgspec.json.Decoder(Line)


def _decoded(decoder: "msgspec.json.Decoder[T]", data: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except UNREADABLE as error:
        text = plain(str(error), 200)
        raise ClusterError(
            f"the API server's answer about the node can't be read: {text}"
        ) from error
