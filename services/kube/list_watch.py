"""The loop under every watch: read the objects, watch them, and go on after every failure.

How a watch ends decides what comes next:

    end                                     next                       pause
    on time                                 watch from where it was    none
    early or cut, after proof               watch from where it was    grows
    early or cut, without proof             read                       grows fast
    ERROR event, error status, bad line     read                       grows fast

Events and bookmarks are proof, unless every watch starts with the present state. A watch that
hangs, without an answer or without an end, is cut after its time and has failed. A pause counts
from the request of the watch, so the time of a hanging watch is not added to it.

So while watches are broken, the objects are read at least once and at most four times a minute.
Pauses start over after a watch that was open for `WatchTimeouts.steady`, or for its full time.

An error is logged when it starts and when it ends. It ends when the failed step works again: the
watch, or the read. The first early end since the last watch of full length is not an error, because
healthy servers restart. Only cancellation ends `watch_forever`: an internal error is logged and the
objects are read again.
"""

import asyncio
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar, Final, NoReturn, TypeVar

import msgspec
import structlog

from services.kube.client import (
    GONE,
    BadStatus,
    ClusterClient,
    Dropped,
    Expired,
    HttpResponse,
    TooLong,
    requested_pause,
)
from services.kube.connection import Connection
from services.process.errors import ClusterError
from services.process.retry import FIRST_SECONDS, GROWTH, LONGEST_SECONDS, Backoff
from services.process.text import plain

EVENT_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)

_WATCH_GROWTH: Final = 10.0
"""How fast pauses grow while watches fail: each attempt costs a list and a watch of two kinds, or a
read and a watch on every node."""
_FULL: Final = 0.9
"""A watch has ended on time after this part of its time."""
_EARLY: Final = "the API server ends watches early"

T = TypeVar("T")

log = structlog.get_logger(room="kube")


@dataclass(frozen=True, slots=True)
class WatchTimeouts:
    """The pauses and time-outs of watches, in seconds."""

    first: float = FIRST_SECONDS
    """The pause after the first failure; it grows with each further one."""
    longest: float = LONGEST_SECONDS
    """The longest pause."""
    steady: float = 15.0
    """A watch that was open this long resets the pauses, however it ended: at most four such
    watches per minute, each with a list, are few enough."""
    watch: float = 60.0
    """The length of a watch. It bounds the age of what is known, and how long a dead connection
    stays unnoticed."""
    grace: float = 10.0
    """How much longer a watch may take before it counts as hanging."""


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """The metadata that matter; `annotations` is undecoded."""

    name: str
    namespace: str
    resource_version: str = ""
    annotations: msgspec.Raw = msgspec.Raw(b"null")


class Item(msgspec.Struct, gc=False):
    """The fields of an object that matter; `spec` is undecoded."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"null")


class WatchEvent(msgspec.Struct):
    """A line of a watch; `type` is one of `EVENT_TYPES`, and the object is not decoded."""

    type: str
    object: msgspec.Raw


class WatchLoop(ABC):
    """Reads objects and watches them until cancelled; `labels` are logged with its errors.

    `clock` is monotonic; `jitter` returns numbers from 0 to 1.
    """

    outage: ClassVar[str]
    """What is logged when errors start."""
    recovery: ClassVar[str]
    """What is logged when they end."""
    events_prove: ClassVar[bool] = True
    """Whether events prove that watching works: not if each watch starts with the present state."""

    def __init__(
        self,
        connection: Connection,
        labels: Mapping[str, str],
        *,
        timeouts: WatchTimeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._timeouts = timeouts or WatchTimeouts()
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self.last_seen = clock()
        """The time of the last event, bookmark, complete read or watch of full length, initially
        the start. A watch that only opens proves nothing."""
        self.error = ""
        """Why the objects aren't being updated now; empty if they are."""
        self.failures = 0
        """How many reads and watches have failed."""
        self._connection = connection
        self._labels = labels
        self._on_failure = on_failure
        self._backoff = self._new_backoff()
        self._opened: float | None = None
        self._proven = False
        """Whether this watch has worked."""
        self._failed_watches = 0
        """How many failed in a row; while there are any, a read alone is no recovery."""
        self._flapping = False
        """Whether the last watch failed although it had worked."""
        self._excused = False
        """Whether a watch ended early since the last full one; the first early end is no error."""
        self._error_since = 0.0

    @property
    def watching(self) -> bool:
        """Whether a watch is open."""
        return self._opened is not None

    async def watch_forever(self) -> NoReturn:
        """Keep the objects up to date until cancelled."""
        while True:
            await self._sleep(await self._attempt())

    @abstractmethod
    async def _read(self, client: ClusterClient) -> float | None:
        """Read the objects if necessary; return the seconds to wait instead of watching, if any."""

    @abstractmethod
    def _watch_request(self) -> tuple[str, dict[str, str | int]]:
        """Return the path and the query of the next watch."""

    @abstractmethod
    async def _apply(self, client: ClusterClient, event: WatchEvent) -> None:
        """Apply an event of the watch; it fails with a `ClusterError`."""

    @abstractmethod
    def _forget(self) -> None:
        """Read everything in the next attempt."""

    async def _attempt(self) -> float:
        """Read if necessary, then watch once; return the seconds until the next attempt."""
        began: float | None = None
        self._proven = False
        try:
            async with self._connection.client() as client:
                pause = await self._read(client)
                if pause is not None:
                    return pause
                began = self._clock()
                full = await self._watch(client)
            return self._watch_works() if full else self._watch_failed(None, began)
        except ClusterError as error:
            return self._read_failed(error) if began is None else self._watch_failed(error, began)
        except Exception:
            log.exception("internal error: the objects are read again", **self._labels)
            self._forget()
            self._count_failure()
            return self._backoff.pause()
        finally:
            self._opened = None

    async def _watch(self, client: ClusterClient) -> bool:
        """Apply events until the server ends the watch; return whether it ended on time."""
        path, params = self._watch_request()
        seconds = max(1, round(self._timeouts.watch * (3 + self._jitter()) / 4))
        params = {"watch": 1, **params, "timeoutSeconds": seconds}
        async with _open_watch(client, path, params, seconds + self._timeouts.grace) as events:
            self._opened = self._clock()
            async for event in events:
                self._proven = self.events_prove
                await self._apply(client, event)
                if self._proven:
                    self._confirm()
        return self._open_seconds >= _FULL * seconds

    @property
    def _open_seconds(self) -> float:
        return 0.0 if self._opened is None else self._clock() - self._opened

    def _confirm(self) -> None:
        """Note that the watch works."""
        self.last_seen = self._clock()
        if not self._flapping or self._open_seconds >= self._timeouts.steady:
            self._failed_watches = 0
            self._recovered()

    def _watch_works(self) -> float:
        """Note a watch of full length; return the seconds until the next attempt."""
        self._flapping = self._excused = False
        self._confirm()
        self._backoff.reset()
        return 0.0

    def _read_works(self, began: float) -> None:
        """Note a complete read."""
        self.last_seen = max(self.last_seen, began)
        if not self._failed_watches:
            self._recovered()

    def _read_failed(self, error: ClusterError) -> float:
        """Note a read that failed; return the seconds until the next attempt."""
        self._count_failure()
        if self._failed_watches == 1:  # the server failed, not watching
            self._failed_watches = 0
        return self._paused(error)

    def _watch_failed(self, error: ClusterError | None, began: float) -> float:
        """Note a watch that failed; return the seconds until the next attempt.

        Without an `error` the server ended it early. It was requested when it `began`.
        """
        self._count_failure()
        steady = self._open_seconds >= self._timeouts.steady
        resumes = self._proven and not isinstance(error, (BadStatus, Expired, TooLong))
        growth = GROWTH if resumes else _WATCH_GROWTH
        self._flapping = self._proven and not steady
        if steady:
            self._backoff.reset()
        if not resumes:
            self._forget()
        if not self._excused and _healthy_servers_do(error, steady=steady):
            self._excused = True
            log.debug("a watch has ended", **self._labels, reason=str(error or _EARLY))
            pause = self._backoff.pause(growth=growth)
        else:
            self._failed_watches += not resumes
            pause = self._paused(error or ClusterError(_EARLY), growth=growth)
        return max(min(pause, self._timeouts.first), pause - (self._clock() - began))

    def _paused(self, error: ClusterError, *, growth: float = GROWTH) -> float:
        pause = self._backoff.pause(requested_pause(error), growth=growth)
        self._log_error(str(error), pause)
        return pause

    def _new_backoff(self) -> Backoff:
        timeouts = self._timeouts
        return Backoff(timeouts.first, timeouts.longest, jitter=self._jitter)

    def _count_failure(self) -> None:
        self.failures += 1
        self._on_failure()

    def _log_error(self, problem: str, pause: float) -> None:
        now = self._clock()
        if not self.error:
            self._error_since = now
        # One outage causes many errors (cut, refused, too old), of which only the first is logged.
        write_log = log.debug if self.error else log.warning
        write_log(
            self.outage,
            **self._labels,
            reason=problem,
            age=round(now - self.last_seen, 1),
            next_try=round(pause, 1),
        )
        self.error = problem

    def _recovered(self) -> None:
        if self.error:
            after = round(self._clock() - self._error_since, 1)
            log.info(self.recovery, **self._labels, after=after)
        self.error = ""


def _healthy_servers_do(error: ClusterError | None, *, steady: bool) -> bool:
    """Whether an end of a watch is an error only if it happens again."""
    return error is None or isinstance(error, Expired) or (steady and isinstance(error, Dropped))


@asynccontextmanager
async def _open_watch(
    client: ClusterClient, path: str, params: Mapping[str, str | int], seconds: float
) -> AsyncIterator[AsyncIterator[WatchEvent]]:
    """Open a watch that counts as hanging after `seconds`; yield its events.

    Raises:
        Expired: The version is too old, here or while iterating; or a line can't be read.
        BadStatus: The API server refuses, here or while iterating.
        ClusterError: No answer; while iterating: the connection broke, or the watch hangs.
    """
    try:
        async with client.lines(path, params, seconds=seconds) as lines:
            yield (_read_line(line) async for line in lines if line)
    except BadStatus as error:
        if error.status == GONE:
            raise Expired(f"the version to watch from is too old: {error}") from error
        raise


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_LINE: Final = msgspec.json.Decoder(WatchEvent)
_STATUS: Final = msgspec.json.Decoder(_Status)


def _read_line(line: bytes) -> WatchEvent:
    """Read a line of a watch.

    A line that can't be read may be cut off, or hold a change: the objects must be read again.
    """
    try:
        event = decode(_LINE, line)
        status = _STATUS.decode(event.object) if event.type == "ERROR" else None
    except UNREADABLE as error:
        raise unreadable_line(error) from error
    if status is not None:
        raise BadStatus(
            f"the watch ended with {status.code}: {plain(status.message, 200)}",
            HttpResponse(status.code, b""),
        )
    if event.type not in EVENT_TYPES:
        raise Expired(f"an event of an unknown type: {plain(event.type, 40)}")
    return event


def unreadable_line(error: Exception) -> Expired:
    """Return the error for a line of a watch that can't be decoded."""
    return Expired(f"a line of the watch can't be read: {plain(str(error), 200)}")


_MAX_DEPTH: Final = 100
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]')


def decode(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """Decode JSON; a value nested deeper than the decoder follows is read as null.

    The API server stores `managedFields` with thousands of levels. Without this, one such object
    would make the list of all namespaces unreadable.
    """
    try:
        return decoder.decode(data)
    except RecursionError:
        return decoder.decode(_prune(data))


def _prune(data: bytes) -> bytes:
    """Return JSON with null in place of everything below `_MAX_DEPTH` levels."""
    kept, depth, start = bytearray(), 0, 0
    for match in _STRING_OR_BRACKET.finditer(data):
        if match[0] in b"[{":
            depth += 1
            if depth == _MAX_DEPTH:
                kept += data[start : match.start()] + b"null"
        elif match[0] in b"]}":
            if depth == _MAX_DEPTH:
                start = match.end()
            depth -= 1
    return bytes(kept + data[start:])
