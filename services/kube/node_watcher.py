"""Follows the annotations of one node, whatever the API server and the network do.

The node is read with `get`, then watched until the server ends the watch, and so on. `get` and
`watch` of nodes are all the rights that it takes. `watch` can be missing: then the node is read
every now and then, and from time to time a watch is tried again.

The watch is opened with `resourceVersion=0` and without bookmarks: it begins with the node as the
API server's cache has it. The version that stands in a node may be older than anything that the
server can still watch from. Bookmarks without a version would make a 1.36 API server turn the watch
into a list and a watch, which fails where the storage can't serve progress requests.

A cache may lag behind what `get` has returned, so nothing that a watch says of the annotations is
believed, and no versions are compared: an event with other annotations than those known only makes
the node be read again.

The field selector `metadata.name` makes the API server send this one node only; it is also what a
role with `resourceNames` allows.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NoReturn, TypeVar
from urllib.parse import quote

import msgspec
import structlog

from services.kube.client import Answer, BadStatus, ClusterClient
from services.kube.connection import Connection
from services.kube.pace import Pace
from services.kube.remedies import FORBIDDEN, asked_to_wait, may_be_ours
from services.process.errors import ClusterError
from services.process.retry import GROWTH
from services.process.text import plain

NODES: Final = "/api/v1/nodes"

POLL_SECONDS: Final = 10.0
"""Between two reads where watching is forbidden, and while there is no such node."""

FORBIDDEN_SECONDS: Final = 600.0
"""How long a watch isn't tried again after it was forbidden."""

_WATCH_GROWTH: Final = 10.0
"""How fast pauses grow while watches fail: each try costs a read and a watch, of every node."""
_FULL: Final = 0.9
"""How much of its time a watch lasts that ends in time."""
_CHANGES: Final = frozenset({"ADDED", "MODIFIED"})

log = structlog.get_logger(room="node")


class NodeFollower:
    """Tells the annotations of a node, at once and after each change of the node.

    Args:
        name: The node's.
        connection: Whom to ask.
        told: Told the node's annotations; None where the API server answers but doesn't say.
        pace: How often to ask.
        failed: Called for each read or watch that fails.
        poll_seconds: Time between two reads where there is no watching.
        clock: Seconds, from any beginning.
        sleep: Waits for some seconds.
        jitter: Gives numbers from 0 to 1.

    Attributes:
        problem: Why the node can't be read now; empty if it can.
        watch_problem: Why it can't be watched, although it can be read; empty if it can.
    """

    def __init__(
        self,
        name: str,
        connection: Connection,
        told: Callable[[Mapping[str, str] | None], None],
        *,
        pace: Pace,
        failed: Callable[[], None] = lambda: None,
        poll_seconds: float = POLL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.problem = ""
        self.watch_problem = ""
        self._name = name
        self._path = f"{NODES}/{quote(name, safe='')}"
        self._connection = connection
        self._told = told
        self._pace = pace
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._count_failure = failed
        self._backoff = pace.backoff(jitter)
        self._known: Mapping[str, str] | None = None
        self._excused = False
        """Whether a watch has ended in a way that is a problem only when it happens again."""
        self._no_watch_before = clock()
        self._polls = False

    async def run(self) -> NoReturn:
        """Follows the node until cancelled."""
        while True:
            await self._sleep(await self._attempt())

    async def _attempt(self) -> float:
        """Reads the node and watches it once; returns how long to wait then."""
        try:
            async with self._connection.client() as client:
                try:
                    if not await self._read(client) or self._clock() < self._no_watch_before:
                        return self._poll()
                except ClusterError as error:
                    return await self._failed(client, error)
                return await self._follow(client)
        except Exception:
            log.exception("the node is read anew after a mistake of ours", node=self._name)
            self._count_failure()
            return self._backoff.pause()

    async def _follow(self, client: ClusterClient) -> float:
        """Watches the node once; returns how long to wait then."""
        seconds = max(1, round(self._pace.watch * (3 + self._jitter()) / 4))
        began = self._clock()
        error: ClusterError | None = None
        try:
            await self._watch(client, seconds)
        except BadStatus as refused:
            if refused.status == FORBIDDEN:
                self._forbidden(refused)
                return self._poll()
            error = refused
        except ClusterError as raised:
            error = raised
        held = self._clock() - began
        if held >= min(self._pace.steady, _FULL * seconds):
            self._watch_works()
            if error is None:
                return 0.0
        return await self._watch_failed(client, error or _Ended("the watch ended before its time"))

    async def _read(self, client: ClusterClient) -> bool:
        """Reads the node and tells its annotations; whether there is one."""
        body = await client.get(self._path)
        if body is None:
            self._tell(
                f'the API server knows no node "{self._name}": set --node-name to what kubectl get'
                " nodes calls this one"
            )
            self._known = None
            self._told(None)
            return False
        self._known = annotations = self._annotations(_decoded(_NODE, body))
        self._recovered()
        self._told(annotations)
        return True

    async def _watch(self, client: ClusterClient, seconds: int) -> None:
        """Reads the node after each change until the server ends the watch.

        Raises:
            ClusterError: The watch or a read failed, or the node is gone.
        """
        params: dict[str, str | int] = {
            "watch": 1,
            "fieldSelector": f"metadata.name={self._name}",
            "resourceVersion": 0,
            "timeoutSeconds": seconds,
        }
        idle = seconds + self._pace.grace
        async with client.lines(NODES, params, idle_seconds=idle) as lines:
            async for line in lines:
                if line and self._differs(_decoded(_LINE, line)):
                    await self._read(client)

    def _differs(self, line: "_Line") -> bool:
        """Whether a line of the watch says something else than the last read.

        Raises:
            ClusterError: It is an error, or can't be read.
        """
        if line.type in _CHANGES:
            return self._annotations(_decoded(_NODE, line.object)) != self._known
        if line.type == "ERROR":
            status = _decoded(_STATUS, line.object)
            raise BadStatus(
                f"the watch of node {self._name} ended with {status.code}:"
                f" {plain(status.message, 200)}",
                Answer(status.code, b""),
            )
        raise _Ended(f"the watch of node {self._name} ended with {plain(line.type, 40)}")

    def _annotations(self, node: "_Node") -> Mapping[str, str]:
        if node.metadata.name != self._name:
            raise ClusterError(f"asked for node {self._name}, got {plain(node.metadata.name, 80)}")
        return node.metadata.annotations or {}

    def _poll(self) -> float:
        self._backoff.reset()
        return self._poll_seconds * (3 + self._jitter()) / 4

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

    async def _failed(self, client: ClusterClient, error: ClusterError) -> float:
        """Notes a read that failed; returns how long to wait."""
        self._count_failure()
        self._tell(str(error))
        if isinstance(error, BadStatus):
            self._told(None)
        return await self._paused(client, error, GROWTH)

    async def _watch_failed(self, client: ClusterClient, error: ClusterError) -> float:
        """Notes a watch that failed; returns how long to wait."""
        self._count_failure()
        if isinstance(error, BadStatus) or self._excused:
            say = log.debug if self.watch_problem else log.warning
            say(
                "the node can't be watched, so it is read now and then",
                node=self._name,
                problem=str(error),
            )
            self.watch_problem = str(error)
        self._excused = True  # watches of servers that are well are cut or end early, but seldom
        return await self._paused(client, error, _WATCH_GROWTH)

    async def _paused(self, client: ClusterClient, error: ClusterError, growth: float) -> float:
        if may_be_ours(error):
            await self._connection.renew(client)
        return self._backoff.pause(asked_to_wait(error), growth=growth)

    def _tell(self, problem: str) -> None:
        say = log.debug if self.problem else log.warning
        say("the node's annotations can't be read", node=self._name, problem=problem)
        self.problem = problem

    def _recovered(self) -> None:
        if self.problem:
            log.info("the node's annotations can be read again", node=self._name)
        self.problem = ""

    def _watch_works(self) -> None:
        if self.watch_problem:
            log.info("the node can be watched again", node=self._name)
        self.watch_problem = ""
        self._excused = False
        self._backoff.reset()


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


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


T = TypeVar("T")

_NODE: Final = msgspec.json.Decoder(_Node)
_LINE: Final = msgspec.json.Decoder(_Line)
_STATUS: Final = msgspec.json.Decoder(_Status)


def _decoded(decoder: "msgspec.json.Decoder[T]", data: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = plain(str(error), 200)
        raise ClusterError(f"what the API server says of the node can't be read: {text}") from error
