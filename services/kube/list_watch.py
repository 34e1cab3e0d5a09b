"""The loop under every watch: read the objects, watch them, and go on after every failure."""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

import msgspec
import structlog

from services.kube.client import BadStatus, ClusterClient, Status, Unreadable, requested_pause
from services.kube.lists import decode_pruned
from services.process.errors import ClusterError
from services.process.json import UNREADABLE
from services.process.outage import Outage
from services.process.retry import FIRST_SECONDS, LONGEST_SECONDS, SPREAD, Backoff
from services.process.text import plain

# How fast pauses grow while watches fail. Each attempt costs more than one request: a list and a
# watch of each kind, or a read and a watch on every node.
_WATCH_GROWTH: Final = 10.0
# The part of its time after which a watch has ended on time.
_FULL: Final = 0.9

log = structlog.get_logger(component="kube")


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """The pauses and time-outs of watches, in seconds; and the sources of time and randomness."""

    first: float = FIRST_SECONDS
    longest: float = LONGEST_SECONDS
    spread: float = SPREAD
    """As in `Backoff`."""
    # A watch that was open this long resets the pauses, however it ended: at most four such watches
    # per minute, each with a list, are few enough.
    steady: float = 15.0
    # Bounds the age of what is known, and how long a dead connection stays unnoticed.
    watch: float = 60.0
    grace: float = 10.0
    """How much longer than `watch` one may take before it counts as hanging."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.random

    def backoff(self) -> Backoff:
        """The pauses between attempts."""
        return Backoff(self.first, self.longest, spread=self.spread, jitter=self.jitter)


USUAL_TIMING: Final = WatchTiming()


class WatchEvent(msgspec.Struct):
    """A line of a watch; its object is not decoded."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class WatchLoop(ABC):
    """Reads objects and watches them until cancelled.

    `outage` is logged when errors start, and `recovery` when they end, both with `labels`.
    """

    def __init__(
        self,
        client: ClusterClient,
        labels: Mapping[str, Any],
        timing: WatchTiming,
        *,
        outage: str,
        recovery: str,
    ) -> None:
        self._timing = timing
        self._clock = timing.clock
        # A watch that only opens proves nothing.
        self.last_seen = self._clock()
        """The time of the last event, bookmark, complete read or watch of full length; initially
        the start."""
        self._outage = Outage(log, outage, recovery, clock=timing.clock, **labels)
        self._version = ""
        """The version to watch from; empty if the objects must be read."""
        self._client = client
        self._labels = labels
        self._backoff = timing.backoff()
        self._opened: float | None = None
        self._watch_broken = False
        """Whether a watch has failed since watching worked."""

    @property
    def error(self) -> str:
        """Why the objects aren't being updated now; empty if they are."""
        return self._outage.reason

    @property
    def failures(self) -> int:
        """How often a read or a watch has failed."""
        return self._outage.failures

    @property
    def watching(self) -> bool:
        """Whether a watch is open."""
        return self._opened is not None

    async def watch_forever(self) -> NoReturn:
        """Keep the objects up to date until cancelled."""
        while True:
            await self._timing.sleep(await self._attempt())

    @abstractmethod
    async def _read(self, client: ClusterClient) -> float | None:
        """Read the objects; return the seconds to wait instead of watching, if any."""

    @abstractmethod
    def _watch_request(self) -> tuple[str, dict[str, str | int]]:
        """Return the path and the query of the next watch."""

    @abstractmethod
    async def _apply(self, client: ClusterClient, event: WatchEvent) -> None:
        """Apply an event of the watch; raise a `ClusterError` if that can't be done."""

    async def _attempt(self) -> float:
        """Read if necessary, then watch once; return the seconds until the next attempt."""
        requested: float | None = None  # when the watch was
        try:
            if not self._version:
                began = self._clock()
                pause = await self._read(self._client)
                self._read_works(began)
                if pause is not None:  # there is nothing to watch
                    self._watch_works()
                    return pause
            requested = self._clock()
            full = await self._watch(self._client)
            # Continued at once from where it was; after every other end the objects are read again,
            # after a pause.
            if full:
                self._watch_works()
                return 0.0
            return self._watch_failed(ClusterError("the API server ends watches early"), requested)
        except ClusterError as error:
            if requested is None:
                return self._read_failed(error)
            return self._watch_failed(error, requested)
        except Exception:
            # An error of ours must not end the loop: nobody would update the objects any more.
            log.exception("internal error: the objects are read again", **self._labels)
            self._version, self._watch_broken = "", True
            self._outage.failed("internal error")
            return self._backoff.pause()
        finally:
            self._opened = None

    async def _watch(self, client: ClusterClient) -> bool:
        """Apply events until the server ends the watch; return whether it ended on time."""
        path, params = self._watch_request()
        # Up to a quarter shorter, so that the watches of many processes don't end together.
        seconds = max(1, round(self._timing.watch * (3 + self._timing.jitter()) / 4))
        params = {"watch": 1, **params, "timeoutSeconds": seconds}
        longest = seconds + self._timing.grace
        async with client.lines(path, params, seconds=longest) as lines:
            self._opened = self._clock()
            async for line in lines:
                if not line:
                    continue
                await self._apply(client, await _read_line(line))
                self.last_seen = self._clock()
                # Not with the first event: watches that only ever send one would seem to work.
                if self._open_seconds >= self._timing.steady:
                    self._watch_works()
        return self._open_seconds >= _FULL * seconds

    @property
    def _open_seconds(self) -> float:
        return 0.0 if self._opened is None else self._clock() - self._opened

    def _watch_works(self) -> None:
        """Note an event of a steady watch, a watch of full length, or that none is needed."""
        self.last_seen = self._clock()
        self._watch_broken = False
        self._backoff.reset()
        self._outage.ended()

    def _read_works(self, began: float) -> None:
        # What it shows is as old as its request, or younger.
        self.last_seen = max(self.last_seen, began)
        # While watches fail, a read alone is no recovery.
        if not self._watch_broken:
            self._outage.ended()

    def _read_failed(self, error: ClusterError) -> float:
        pause = self._backoff.pause(requested_pause(error))
        self._failed(error, pause)
        return pause

    def _watch_failed(self, error: ClusterError, requested: float) -> float:
        self._version = ""  # events may be missing
        self._watch_broken = True
        # A load balancer may cut each watch that is silent for half a minute.
        if self._open_seconds >= self._timing.steady:
            self._backoff.reset()
        pause = self._backoff.pause(requested_pause(error), growth=_WATCH_GROWTH)
        self._failed(error, pause)
        # From when it was requested, so that the time of a hanging watch isn't added.
        return max(min(pause, self._timing.first), pause - (self._clock() - requested))

    def _failed(self, error: ClusterError, pause: float) -> None:
        age = round(self._clock() - self.last_seen, 1)
        self._outage.failed(str(error), age=age, next_try=round(pause, 1))


_LINE: Final = msgspec.json.Decoder(WatchEvent)
_STATUS: Final = msgspec.json.Decoder(Status)


async def _read_line(line: bytes) -> WatchEvent:
    # A line that can't be read may be cut off, or hold a change: the objects must be read again.
    try:
        event = await decode_pruned(_LINE, line)
        status = _STATUS.decode(event.object) if event.type == "ERROR" else None
    except UNREADABLE as error:
        raise unreadable_line(error) from error
    if status is not None:
        raise BadStatus(
            f"the watch ended with {status.code}: {plain(status.message, 200)}",
            status.code,
        )
    return event


def unreadable_line(error: Exception) -> Unreadable:
    """The error for a line of a watch that can't be decoded."""
    return Unreadable(f"a line of the watch can't be read: {plain(str(error), 200)}")
