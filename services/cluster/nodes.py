"""Follows the annotations of one node, whatever the API server and the network do.

The node is read with `get`, then watched until the server ends the watch, and so on. A watch is
opened without a version, so that it begins with the node as it is: the version that stands in a
node may be older than anything that the server can still watch from. `get` and `watch` of nodes are
all the rights that it takes. `watch` can be missing: then the node is read every now and then, and
from time to time a watch is tried again.

The field selector `metadata.name` makes the API server send this one node only; it is also what a
role with `resourceNames` allows.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeVar
from urllib.parse import quote

import msgspec
import structlog

from services.cluster.backoff import Backoff, Pace
from services.cluster.client import BadStatus, ClusterClient
from services.cluster.connection import Connection
from services.cluster.remedies import FORBIDDEN, asked_to_wait, may_be_ours
from services.domain.errors import ClusterError
from services.domain.text import plain

NODES: Final = "/api/v1/nodes"

POLL_SECONDS: Final = 10.0
"""Between two reads where watching is forbidden, and while there is no such node."""

FORBIDDEN_SECONDS: Final = 600.0
"""How long a watch isn't tried again after it was forbidden."""

_CHANGES: Final = frozenset({"ADDED", "MODIFIED"})

log = structlog.get_logger(room="node")


class NodeFollower:
    """Tells the annotations of a node, at once and after each change of the node.

    Args:
        name: The node's.
        connection: Whom to ask.
        told: Told the node's annotations; None where the API server answers but doesn't say.
        pace: How often to ask.
        poll_seconds: Time between two reads where there is no watching.
        clock: Seconds, from any beginning.

    Attributes:
        problem: Why the node isn't followed now; empty if it is.
    """

    def __init__(
        self,
        name: str,
        connection: Connection,
        told: Callable[[Mapping[str, str] | None], None],
        *,
        pace: Pace,
        poll_seconds: float = POLL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem = ""
        self._name = name
        self._path = f"{NODES}/{quote(name, safe='')}"
        self._connection = connection
        self._told = told
        self._pace = pace
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._backoff = Backoff(pace)
        self._no_watch_before = clock()
        self._polls = False

    async def run(self) -> NoReturn:
        """Follows the node until cancelled."""
        while True:
            pause = await self._attempt()
            await asyncio.sleep(pause)

    async def _attempt(self) -> float:
        """Reads the node and watches it once; returns how long to wait then."""
        try:
            async with self._connection.client() as client:
                try:
                    return await self._follow(client)
                except ClusterError as error:
                    if may_be_ours(error):
                        await self._connection.renew(client)
                    return self._failed(error)
        except Exception:
            log.exception("the node is read anew after a mistake of ours", node=self._name)
            return self._backoff.pause()

    async def _follow(self, client: ClusterClient) -> float:
        began = self._clock()
        if not await self._read(client) or began < self._no_watch_before:
            return self._poll()
        try:
            await self._watch(client)
        except BadStatus as error:
            if error.status != FORBIDDEN:
                raise
            self._forbidden(error)
            return self._poll()
        if self._clock() - began >= self._pace.steady:
            self._backoff.reset()
            return 0.0
        return self._backoff.pause()

    async def _read(self, client: ClusterClient) -> bool:
        body = await client.get(self._path)
        if body is None:
            self._tell(
                f'the API server knows no node "{self._name}": set --node-name to what kubectl get'
                " nodes calls this one"
            )
            self._told(None)
            return False
        self._take(_decoded(_NODE, body))
        self._recovered()
        return True

    async def _watch(self, client: ClusterClient) -> None:
        """Tells changes until the server ends the watch in its time."""
        seconds = max(1, round(self._pace.watch * random.uniform(0.75, 1)))  # noqa: S311 - jitter
        params: dict[str, str | int] = {
            "watch": 1,
            "fieldSelector": f"metadata.name={self._name}",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }
        idle = seconds + self._pace.grace
        async with client.lines(NODES, params, idle_seconds=idle) as lines:
            async for line in lines:
                if line:
                    self._changed(_decoded(_LINE, line))

    def _changed(self, line: "_Line") -> None:
        if line.type in _CHANGES:
            self._take(_decoded(_NODE, line.object))
        elif (
            line.type != "BOOKMARK"
        ):  # gone, or an error such as 410: what is there now has to be read
            raise _Ended(f"the watch of node {self._name} ended with {plain(line.type, 40)}")

    def _take(self, node: "_Node") -> None:
        if node.metadata.name != self._name:
            raise _Ended(f"asked for node {self._name}, got {plain(node.metadata.name, 80)}")
        self._told(node.metadata.annotations or {})

    def _poll(self) -> float:
        self._backoff.reset()
        return self._poll_seconds * random.uniform(0.75, 1)  # noqa: S311 - jitter

    def _forbidden(self, error: BadStatus) -> None:
        self._no_watch_before = self._clock() + FORBIDDEN_SECONDS
        say = log.debug if self._polls else log.info
        say(
            "watching the node is forbidden, so it is read every now and then; to be told of"
            " changes at once, allow `watch` of nodes",
            node=self._name,
            seconds=self._poll_seconds,
            reason=str(error),
        )
        self._polls = True

    def _failed(self, error: ClusterError) -> float:
        pause = self._backoff.pause(asked_to_wait(error))
        if not isinstance(error, _Ended):
            self._tell(str(error))
        if isinstance(error, BadStatus):
            self._told(None)
        return pause

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("the node's annotations can't be read", node=self._name, problem=problem)
        self.problem = problem

    def _recovered(self) -> None:
        if self.problem:
            log.info("the node's annotations can be read again", node=self._name)
        self.problem = ""


class _Ended(ClusterError):
    """A watch that tells no more; what is the case has to be read."""


class _Metadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


T = TypeVar("T")

_NODE: Final = msgspec.json.Decoder(_Node)
_LINE: Final = msgspec.json.Decoder(_Line)


def _decoded(decoder: "msgspec.json.Decoder[T]", data: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = plain(str(error), 200)
        raise ClusterError(f"what the API server says of the node can't be read: {text}") from error
