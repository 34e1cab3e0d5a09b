"""Writes Kubernetes Events about any object, without ever holding up who has something to tell.

`tell` only notes; `run` writes, at a bounded rate, as long as there is an API server to write to.
What happens again is counted in the Event object that is there (`patch`); without the right to
patch, it is told by a new object, but no more often than every ten minutes for as long as it stays
the same. `services.kube.event_queue` says what is kept while nothing can be written.

The Events are those of core/v1, which kubectl describe shows and which need `create` (and, better,
`patch`) of `events` in the core group. An Event about an object without a namespace, such as a
node, lives in `default`: the API server takes it nowhere else.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn
from urllib.parse import quote

import structlog

from services.kube.client import (
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    Answer,
    BadStatus,
    ClusterClient,
    Connection,
    asked_to_wait,
    may_be_ours,
    will_pass,
)
from services.kube.event_queue import EventQueue, Happening, Series
from services.kube.pace import Pace
from services.process.errors import ClusterError
from services.process.text import clip

CREATED: Final = "created"
COUNTED: Final = "counted"
"""Outcome of what was added to the Event object that is there."""
REPEATED: Final = "repeated"
"""Outcome of what is the same as before, and can't be counted for want of the right to patch."""
REFUSED: Final = "refused"
"""Outcome of what the API server doesn't take."""

REPEAT_SECONDS: Final = 600.0
"""How often the same is told by a new object, where an object can't be patched."""

MAX_MESSAGE: Final = 1000
"""Characters of a message; longer ones are for the log."""

_MERGE: Final = "application/merge-patch+json"
_MAX_NAME: Final = 253
_UNFIT: Final = re.compile(r"[^a-z0-9.-]+")

log = structlog.get_logger(room="events")


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who tells.

    Args:
        component: The programme, `accelbind-plugin`.
        host: The node that it runs on; empty if that doesn't matter.
        instance: Which one of several, such as its pod.
    """

    component: str
    host: str = ""
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Rate:
    """How many requests may be made.

    Args:
        burst: At once, after a quiet time.
        seconds: Between two, after that.
    """

    burst: int = 10
    seconds: float = 5.0


class EventWriter:
    """Writes what happens as Events.

    Args:
        connection: Whom to write to.
        reporter: Who tells.
        counted: Told the outcome of everything that was told.
        pace: How to wait for an API server that is away.
        rate: How much to write.
        clock: Seconds of the epoch.
    """

    def __init__(
        self,
        connection: Connection,
        reporter: Reporter,
        *,
        counted: Callable[[str], None],
        pace: Pace,
        rate: Rate = Rate(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._reporter = reporter
        self._counted = counted
        self._clock = clock
        self._queue = EventQueue(counted)
        self._bucket = _Bucket(rate)
        self._backoff = pace.backoff()
        self._due = asyncio.Event()
        self._problem = ""
        self._patch_from = 0.0

    def tell(self, happening: Happening) -> None:
        """Notes what happened, to be written soon. Call it in the event loop."""
        self._queue.put(happening, self._clock())
        self._due.set()

    async def run(self) -> NoReturn:
        """Writes what is told until cancelled."""
        while True:
            series = self._queue.take()
            if series is None:
                self._due.clear()
                await self._due.wait()
                continue
            if self._repeats(series):
                self._counted(REPEATED)
                continue
            await self._bucket.take()
            await asyncio.sleep(await self._attempt(series))

    async def _attempt(self, series: Series) -> float:
        """Writes a series, or puts it back; returns how long to wait then."""
        try:
            async with self._connection.client() as client:
                try:
                    await self._write(client, series)
                except ClusterError as error:
                    if may_be_ours(error):
                        await self._connection.renew(client)
                    return self._failed(series, error)
        except Exception:
            log.exception("an Event is lost to a mistake of ours", reason=series.latest.reason)
            self._counted(REFUSED)
            return self._backoff.pause()
        self._backoff.reset()
        self._recovered()
        return 0.0

    async def _write(self, client: ClusterClient, series: Series) -> None:
        """Counts on in the object that is there, or makes one.

        Raises:
            ClusterError: Neither.
        """
        if series.name and self._clock() >= self._patch_from:
            count, path = series.count, _path(series.latest, series.name)
            change = _change(series)
            answer = await client.request("PATCH", path, body=change, content_type=_MERGE)
            if answer.status == FORBIDDEN:
                self._no_patch(client, answer, path)
                if self._repeats(series):
                    self._counted(REPEATED)
                    return
            elif answer.status != NOT_FOUND:  # Events are forgotten after an hour or so
                client.expect(answer, f"PATCH {path}")
                self._noted(series, series.name, COUNTED, count)
                return
        count, path = series.count, _path(series.latest)
        name = _new_name(series.latest.about.name)
        body = _event(series, name, self._reporter)
        client.expect(await client.request("POST", path, body=body), f"POST {path}")
        self._noted(series, name, CREATED, count)

    def _noted(self, series: Series, name: str, outcome: str, count: int) -> None:
        self._queue.written(series, name, self._clock())
        self._counted(outcome)
        log.debug("event written", reason=series.latest.reason, name=name, count=count)

    def _repeats(self, series: Series) -> bool:
        """Whether it says what the last object says already, and can't be counted there."""
        now = self._clock()
        if not series.name or now >= self._patch_from:
            return False
        return self._queue.shown(series) and now - series.written_at < REPEAT_SECONDS

    def _no_patch(self, client: ClusterClient, answer: Answer, path: str) -> None:
        first = not self._patch_from
        self._patch_from = self._clock() + REPEAT_SECONDS
        if first:
            try:
                client.expect(answer, f"PATCH {path}")
            except BadStatus as error:
                log.info(
                    "Events can't be counted on, so what lasts is told anew now and then; to count"
                    " it, allow `patch` of events",
                    reason=str(error),
                )

    def _failed(self, series: Series, error: ClusterError) -> float:
        pause = self._backoff.pause(asked_to_wait(error))
        again = will_pass(error) or may_be_ours(error)
        if again or (isinstance(error, BadStatus) and error.status == CONFLICT):
            self._queue.put_back(series)
        else:
            self._counted(REFUSED)
        say = log.debug if self._problem else log.warning
        say("Events can't be written now", problem=str(error), waiting=len(self._queue))
        self._problem = str(error)
        return pause

    def _recovered(self) -> None:
        if self._problem:
            log.info("Events can be written again")
        self._problem = ""


class _Bucket:
    """Tokens: so many at most, a new one every so many seconds."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._tokens = float(rate.burst)
        self._at = time.monotonic()

    async def take(self) -> None:
        """Takes a token, waiting for it if need be."""
        self._fill()
        if self._tokens < 1:
            await asyncio.sleep((1 - self._tokens) * self._rate.seconds)
            self._fill()
        self._tokens -= 1

    def _fill(self) -> None:
        now = time.monotonic()
        more = (now - self._at) / self._rate.seconds
        self._tokens, self._at = min(self._rate.burst, self._tokens + more), now


def _path(happening: Happening, name: str = "") -> str:
    namespace = happening.about.namespace or "default"
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
    return f"{path}/{quote(name, safe='')}" if name else path


def _new_name(about: str) -> str:
    """A name that no other Event has, beginning with the object's as far as that fits."""
    unique = secrets.token_hex(8)
    fitting = _UNFIT.sub("-", about.lower())[: _MAX_NAME - len(unique) - 1].strip(".-")
    return f"{fitting}.{unique}" if fitting else unique


def _change(series: Series) -> dict[str, Any]:
    return {
        "count": series.count,
        "lastTimestamp": _timestamp(series.last),
        "message": clip(series.latest.message, MAX_MESSAGE),
    }


def _event(series: Series, name: str, reporter: Reporter) -> dict[str, Any]:
    latest = series.latest
    about = latest.about
    involved = {
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
        "apiVersion": about.api_version,
        "fieldPath": about.field_path,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about.namespace or "default"},
        "involvedObject": {key: value for key, value in involved.items() if value},
        "reason": latest.reason,
        "type": "Warning" if latest.warning else "Normal",
        "source": {"component": reporter.component, "host": reporter.host},
        "reportingComponent": reporter.component,
        "reportingInstance": reporter.instance or reporter.host,
        "firstTimestamp": _timestamp(series.first),
        **_change(series),
    }


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
