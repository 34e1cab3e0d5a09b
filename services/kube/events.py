"""Kubernetes Events about any object, written in the background.

`record` puts a record into a queue; `write_forever` writes the queue at a bounded rate. Repeated
records become one Event object with a count (a *series*), as kubelets write them. The queue is
bounded: it holds only the latest record of each subject (a device, a card), so after an outage the
API server gets the current state instead of the history. Times and counts are those of the records,
whenever they are written.

These are Events of core/v1, which kubectl describe shows. They need the verb `create`, and better
`patch` too, of `events` in the core group. An Event about an object without a namespace, such as a
node, is in `default`: the API server accepts it nowhere else.
"""

import asyncio
import re
import secrets
import time
from collections import OrderedDict
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
    UNAUTHORIZED,
    BadStatus,
    ClusterClient,
    requested_pause,
    will_pass,
)
from services.kube.connection import Connection
from services.process.errors import ClusterError
from services.process.retry import Backoff
from services.process.text import clip

CREATED: Final = "created"
COUNTED: Final = "counted"
"""Outcome: added to the count of an existing Event object."""
REFUSED: Final = "refused"
"""Outcome: not accepted by the API server."""
SUPERSEDED: Final = "superseded"
"""Outcome: not written, because a newer record of the same subject replaced it."""
DROPPED: Final = "dropped"
"""Outcome: not written, because the queue was full."""

MAX_WAITING: Final = 256
"""Subjects in the queue."""
MAX_SERIES: Final = 1024
"""Series whose counts are remembered."""
MAX_MESSAGE: Final = 1000
"""Characters of a message; the log has the rest."""

_MERGE: Final = "application/merge-patch+json"
_MAX_NAME: Final = 253
_UNFIT: Final = re.compile(r"[^a-z0-9.-]+")

log = structlog.get_logger(component="events")


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an Event is about."""

    kind: str
    name: str
    namespace: str = ""
    """Empty for objects without one, such as a node."""
    uid: str = ""
    api_version: str = "v1"
    field_path: str = ""
    """A part of it, such as `spec.containers{main}`."""


def node_reference(name: str) -> ObjectReference:
    """Return the reference to a node; kubectl describe expects its name as uid."""
    return ObjectReference("Node", name, uid=name)


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something that happened to an object."""

    object: ObjectReference
    subject: str
    """A part of the object; only the latest record of a subject is written."""
    reason: str
    """A word in CamelCase, for programs."""
    message: str
    warning: bool = True
    """Whether the Event's type is `Warning`, rather than `Normal`."""


@dataclass(slots=True)
class _Series:
    """The records with one subject and reason; times are seconds of the epoch."""

    latest: EventRecord
    first: float
    last: float
    count: int = 0
    name: str = ""
    """Of the Event object; empty if there is none yet."""


_Subject = tuple[ObjectReference, str]


class EventRecorder:
    """Writes what is recorded as Events of a program, the `component`, on the node `host`.

    `on_result` gets the outcome of every record. `burst` Events are written at once after a quiet
    time, then one every `seconds`.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        component: str,
        host: str,
        on_result: Callable[[str], None],
        backoff: Backoff | None = None,
        burst: int = 10,
        seconds: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._component = component
        self._host = host
        self._on_result = on_result
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._bucket = _TokenBucket(burst, seconds)
        self._series: OrderedDict[tuple[_Subject, str], _Series] = OrderedDict()
        self._waiting: OrderedDict[_Subject, _Series] = OrderedDict()
        self._recorded = asyncio.Event()
        self._error = ""
        self._patch_forbidden = False

    def record(self, event: EventRecord) -> None:
        """Put a record into the queue; to be called in the event loop."""
        now = self._clock()
        subject = event.object, event.subject
        series = self._series.setdefault((subject, event.reason), _Series(event, now, now))
        self._series.move_to_end((subject, event.reason))
        if len(self._series) > MAX_SERIES:
            self._series.popitem(last=False)
        series.latest, series.last, series.count = event, now, series.count + 1
        if subject in self._waiting:
            self._on_result(SUPERSEDED)
        self._waiting[subject] = series
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popitem(last=False)
            self._on_result(DROPPED)
        self._recorded.set()

    async def write_forever(self) -> NoReturn:
        """Write the queue until cancelled."""
        while True:
            if not self._waiting:
                self._recorded.clear()
                await self._recorded.wait()
            await self._bucket.spend_token()
            _, series = self._waiting.popitem(last=False)
            await asyncio.sleep(await self._attempt(series))

    async def _attempt(self, series: _Series) -> float:
        """Write a series or requeue it; return the seconds until the next attempt."""
        try:
            async with self._connection.client() as client:
                await self._write(client, series)
        except ClusterError as error:
            return self._failed(series, error)
        except Exception:
            log.exception("internal error: an Event is lost", reason=series.latest.reason)
            self._on_result(REFUSED)
            return self._backoff.pause()
        self._backoff.reset()
        if self._error:
            log.info("Events can be written again")
        self._error = ""
        return 0.0

    async def _write(self, client: ClusterClient, series: _Series) -> None:
        """Add to the existing Event object, or create one."""
        if series.name and await self._add_to_count(client, series):
            self._on_result(COUNTED)
            return
        path, name = _path(series.latest), _new_name(series.latest.object.name)
        body = self._event(series, name)
        client.expect(await client.request("POST", path, body=body), f"POST {path}")
        series.name = name
        self._on_result(CREATED)

    def _event(self, series: _Series, name: str) -> dict[str, Any]:
        latest = series.latest
        about = latest.object
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
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": _timestamp(series.first),
            **_changing_fields(series),
        }

    async def _add_to_count(self, client: ClusterClient, series: _Series) -> bool:
        """Update the Event object of a series; return whether it exists and may be changed."""
        path = f"{_path(series.latest)}/{quote(series.name, safe='')}"
        change = _changing_fields(series)
        answer = await client.request("PATCH", path, body=change, content_type=_MERGE)
        if answer.status == NOT_FOUND:  # the API server deletes Events after an hour or so
            return False
        if answer.status == FORBIDDEN:
            if not self._patch_forbidden:
                log.info("each repeat is a new Event; to count repeats, allow `patch` of events")
            self._patch_forbidden = True
            return False
        client.expect(answer, f"PATCH {path}")
        return True

    def _failed(self, series: _Series, error: ClusterError) -> float:
        """Note why a series wasn't written; return the seconds until the next attempt."""
        subject = series.latest.object, series.latest.subject
        again = isinstance(error, BadStatus) and error.status in {CONFLICT, UNAUTHORIZED}
        if not (again or will_pass(error)):
            self._on_result(REFUSED)
        elif subject in self._waiting:
            self._on_result(SUPERSEDED)
        else:
            self._waiting[subject] = series
            self._waiting.move_to_end(subject, last=False)
        write_log = log.debug if self._error else log.warning
        write_log("Events can't be written now", reason=str(error), waiting=len(self._waiting))
        self._error = str(error)
        return self._backoff.pause(requested_pause(error))


class _TokenBucket:
    def __init__(self, burst: int, seconds: float) -> None:
        self._burst = burst
        self._seconds = seconds
        self._tokens = float(burst)
        self._filled_at = time.monotonic()

    async def spend_token(self) -> None:
        """Take a token, or wait for one."""
        self._fill()
        if self._tokens < 1:
            await asyncio.sleep((1 - self._tokens) * self._seconds)
            self._fill()
        self._tokens -= 1

    def _fill(self) -> None:
        now = time.monotonic()
        more = (now - self._filled_at) / self._seconds
        self._tokens, self._filled_at = min(self._burst, self._tokens + more), now


def _path(event: EventRecord) -> str:
    return f"/api/v1/namespaces/{quote(event.object.namespace or 'default', safe='')}/events"


def _new_name(about: str) -> str:
    """Return a unique name that starts with the object's name, as far as that fits."""
    unique = secrets.token_hex(8)
    fitting = _UNFIT.sub("-", about.lower())[: _MAX_NAME - len(unique) - 1].strip(".-")
    return f"{fitting}.{unique}" if fitting else unique


def _changing_fields(series: _Series) -> dict[str, Any]:
    return {
        "count": series.count,
        "lastTimestamp": _timestamp(series.last),
        "message": clip(series.latest.message, MAX_MESSAGE),
    }


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
