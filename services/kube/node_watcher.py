"""Watches the annotations of one node through all outages.

The node is read with `get`, then watched until the server ends the watch, and so on. This needs the
verbs `get` and `watch` of nodes. Without `watch` the node is polled, and a watch is tried again
from time to time. `services.kube.list_watch` has the loop.

The watch is opened with `resourceVersion=0` and without bookmarks: it starts with the node in the
API server's cache. The version in a node's metadata may be too old to watch from. Bookmarks without
a version would make a 1.36 API server turn the watch into a list and a watch, which fails where the
storage can't serve progress requests.

The cache may lag behind what `get` has returned, so the annotations of an event aren't used, and no
versions are compared: an event whose annotations differ from the known ones causes another read, at
most every `READ_SECONDS`.

The field selector `metadata.name` restricts the watch to this node, which a role with
`resourceNames` requires too.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote

import msgspec
import structlog

from services.kube.client import FORBIDDEN, BadStatus, ClusterClient, Expired
from services.kube.connection import Connection
from services.kube.list_watch import UNREADABLE, WatchEvent, WatchLoop, WatchTimeouts
from services.process.errors import ClusterError
from services.process.text import plain

NODES: Final = "/api/v1/nodes"

POLL_SECONDS: Final = 10.0
"""Between two reads where watching is forbidden, or while the node doesn't exist."""

READ_SECONDS: Final = 5.0
"""Between two reads that events of one watch cause: a cache may lag behind for long."""

FORBIDDEN_SECONDS: Final = 600.0
"""Between two attempts to watch where it is forbidden."""

log = structlog.get_logger(room="kube")


class NodeWatcher(WatchLoop):
    """Reports the annotations of a node, at the start and after each change.

    `on_change` gets the annotations, or None if the API server answers without them. `on_failure`
    is called for each read or watch that fails.
    """

    outage = "the node's annotations are not being updated"
    recovery = "the node's annotations are being updated again"
    events_prove = False

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
        super().__init__(
            connection,
            {"node": name},
            timeouts=timeouts,
            clock=clock,
            sleep=sleep,
            jitter=jitter,
            on_failure=on_failure,
        )
        self._name = name
        self._path = f"{NODES}/{quote(name, safe='')}"
        self._on_change = on_change
        self._poll_seconds = poll_seconds
        self._known: Mapping[str, str] | None = None
        self._read_after = self._no_watch_before = self._clock()
        self._polls = False

    def _forget(self) -> None:
        """Do nothing: the node is read in each attempt."""

    def _watch_request(self) -> tuple[str, dict[str, str | int]]:
        return NODES, {"fieldSelector": f"metadata.name={self._name}", "resourceVersion": 0}

    async def _read(self, client: ClusterClient) -> float | None:
        """Read the node and report its annotations; return the pause if it can't be watched."""
        began = self._clock()
        body = await client.get(self._path)
        pause = self._poll_seconds * (3 + self._jitter()) / 4
        if body is None:
            self._log_error(
                f'the API server has no node "{self._name}": set --node-name to the name of this'
                " node in kubectl get nodes",
                pause,
            )
            self._known = None
        else:
            self._known = self._annotations(body)
            self._read_works(began)
        self._on_change(self._known)
        if body is None or self._clock() < self._no_watch_before:
            self._backoff.reset()
            return pause
        return None

    async def _apply(self, client: ClusterClient, event: WatchEvent) -> None:
        if event.type not in ("ADDED", "MODIFIED"):
            raise Expired(f"the watch of node {self._name} ended with {event.type}")
        if self._annotations(event.object) != self._known:
            await self._sleep(max(0.0, self._read_after - self._clock()))
            await self._read(client)
            self._read_after = self._clock() + READ_SECONDS

    def _annotations(self, node: bytes | msgspec.Raw) -> Mapping[str, str]:
        try:
            metadata = _NODE.decode(node).metadata
        except UNREADABLE as error:
            reason = plain(str(error), 200)
            raise ClusterError(f"the answer about the node can't be read: {reason}") from error
        if metadata.name != self._name:
            raise ClusterError(f"asked for node {self._name}, got {plain(metadata.name, 80)}")
        return metadata.annotations or {}

    def _read_failed(self, error: ClusterError) -> float:
        if isinstance(error, BadStatus):
            self._on_change(None)
        return super()._read_failed(error)

    def _watch_failed(self, error: ClusterError | None, began: float) -> float:
        if not (isinstance(error, BadStatus) and error.status == FORBIDDEN):
            return super()._watch_failed(error, began)
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
        self._backoff.reset()
        return self._poll_seconds * (3 + self._jitter()) / 4


class _Metadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata


_NODE: Final = msgspec.json.Decoder(_Node)
