"""Kubernetes Events about any object, written in the background.

`record` puts a record into a queue; `write_forever` writes the queue at a bounded rate. Beyond a
burst, records of one object and reason that wait become one Event, which counts and names their
subjects: when the cards of a whole fleet break, an API server gets few writes per node. The same
object, reason and message is not written again for ten minutes; if its subject (a device, a card)
was reported otherwise in between, it is written after them. The queue is bounded: it holds only the
latest record of each subject, so after an outage the API server gets the current state instead of
the history. Times are those of the records, whenever they are written.

These are Events of core/v1, which kubectl describe shows. They need the verb `create` of `events`
in the core group. An Event about an object without a namespace, such as a node, is in `default`:
the API server accepts it nowhere else.
"""

import asyncio
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from urllib.parse import quote

import structlog
from prometheus_client import Counter

from services.kube.client import (
    CONFLICT,
    UNAUTHORIZED,
    BadStatus,
    ClusterClient,
    requested_pause,
    will_pass,
)
from services.process.errors import ClusterError
from services.process.outage import Outage
from services.process.retry import Backoff
from services.process.text import clip, listing, plain
from services.process.waits import Due

CREATED: Final = "created"
REPEATED: Final = "repeated"
"""Outcome: not written, because the same was written last, less than `QUIET_SECONDS` ago."""
REFUSED: Final = "refused"
"""Outcome: not accepted by the API server."""
SUPERSEDED: Final = "superseded"
"""Outcome: not written, because a newer record of the same subject replaced it."""
MERGED: Final = "merged"
"""Outcome: counted and named in the Event of another subject."""
DROPPED: Final = "dropped"
"""Outcome: not written, because the queue was full."""

MAX_WAITING: Final = 256
"""Subjects in the queue."""
MAX_WRITTEN: Final = 1024
"""Events that are remembered, so that they are not repeated."""
POD_SECONDS: Final = 5.0
"""Between two Events of pods, once the burst is used up."""
QUIET_SECONDS: Final = 600.0
"""Between two Events with the same object, reason and message."""
MAX_MESSAGE: Final = 1000
"""Characters of a message; the log has the rest."""
MAX_NAMED: Final = 20
"""Subjects that an Event names besides its own."""
MAX_FOREIGN: Final = 800
"""Characters of a text from elsewhere."""

log = structlog.get_logger(component="events")


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object of apiVersion v1 that an Event is about."""

    kind: str
    name: str
    namespace: str = ""
    """Empty for objects without one, such as a node."""
    uid: str = ""


class NamesPod(Protocol):
    """A pod in the cluster."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Its UID."""


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


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A record in the queue."""

    record: EventRecord
    time: float
    """In seconds of the epoch."""

    @property
    def subject(self) -> tuple[ObjectReference, str]:
        return self.record.object, self.record.subject

    @property
    def content(self) -> tuple[ObjectReference, str, str]:
        """The content that is not written again for a while."""
        return self.record.object, self.record.reason, self.record.message


class EventRecorder:
    """Writes what is recorded as Events of a program, the `component`, on the node `host`.

    `results` counts the outcome of every record. `burst` Events are written at once after a quiet
    time, then one every `seconds`; those about pods, which the kubelet starts one after the other,
    have a rate of their own. Without a connection, records are dropped.
    """

    def __init__(
        self,
        client: ClusterClient | None,
        *,
        component: str,
        host: str,
        results: Counter,
        backoff: Backoff | None = None,
        burst: int = 10,
        seconds: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._component = component
        self._host = host
        self._results = results
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._bucket = _TokenBucket(burst, seconds)
        self._of_pods = _TokenBucket(burst, POD_SECONDS)
        self._waiting: OrderedDict[tuple[ObjectReference, str], _Waiting] = OrderedDict()
        self._written: OrderedDict[tuple[ObjectReference, str, str], float] = OrderedDict()
        """When each content was written last, the oldest first."""
        self._shown: OrderedDict[tuple[ObjectReference, str], _Waiting] = OrderedDict()
        """What was written last of each subject, the oldest first."""
        self._postponed: dict[tuple[ObjectReference, str], asyncio.TimerHandle] = {}
        self._recorded = Due()
        self._outage = Outage(log, "Events can't be written now", "Events can be written again")

    def record(self, event: EventRecord) -> None:
        """Put a record into the queue; to be called in the event loop."""
        if self._client is not None:
            self._put(_Waiting(event, self._clock()))

    def record_on_node(self, subject: str, reason: str, message: str, *, warning: bool) -> None:
        """Put a record about something on the host into the queue."""
        about, text = node_reference(self._host), plain(message, MAX_FOREIGN)
        self.record(EventRecord(about, subject, str(reason), text, warning))

    def record_on_pod(self, pod: NamesPod, reason: str, message: str, *, warning: bool) -> None:
        """Put a record about a pod into the queue; each message is a subject of its own."""
        about = ObjectReference("Pod", pod.name, pod.namespace, pod.uid)
        text = plain(message, MAX_MESSAGE)
        self.record(EventRecord(about, message, str(reason), text, warning))

    def _count(self, outcome: str) -> None:
        self._results.labels(outcome).inc()

    def _put(self, new: _Waiting) -> None:
        postponed = self._postponed.pop(new.subject, None)
        if postponed is not None:
            postponed.cancel()
        if postponed is not None or new.subject in self._waiting:
            self._count(SUPERSEDED)
        self._waiting[new.subject] = new
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popitem(last=False)
            self._count(DROPPED)
        self._recorded.request()

    async def write_forever(self) -> None:
        """Write the queue until cancelled; end at once without a connection."""
        while self._client is not None:
            new = self._take()
            if new is None:
                await self._recorded.wait(self._seconds_left())
                continue
            since = self._clock() - self._written.get(new.content, -math.inf)
            if not 0 <= since < QUIET_SECONDS:
                self._bucket_of(new).spend()
                await asyncio.sleep(await self._attempt(self._client, new))
            elif self._shown.get(new.subject, new).content == new.content:
                self._count(REPEATED)
            else:
                self._postpone(new, QUIET_SECONDS - since)

    def _take(self) -> _Waiting | None:
        """The next record whose object may have an Event now; None if there is none."""
        for key, new in self._waiting.items():
            bucket = self._bucket_of(new)
            if bucket.has_token():
                del self._waiting[key]
                return new if bucket.in_burst else self._merged(new)
        return None

    def _bucket_of(self, new: _Waiting) -> "_TokenBucket":
        return self._of_pods if new.record.object.namespace else self._bucket

    def _seconds_left(self) -> float | None:
        """Until a record may be written; None if none waits."""
        buckets = map(self._bucket_of, self._waiting.values())
        return min((each.seconds_left for each in buckets), default=None)

    def _merged(self, new: _Waiting) -> _Waiting:
        """A record with those that wait and say the same of other parts of its object."""
        kind = _kind_of(new)
        others = [key for key, each in self._waiting.items() if _kind_of(each) == kind]
        if not others:
            return new
        for key in others:
            del self._waiting[key]
            self._count(MERGED)
        named = listing([subject for _, subject in others], most=MAX_NAMED)
        text = f"{new.record.message}; and {len(others)} more: {named}"
        return replace(new, record=replace(new.record, message=text))

    def _postpone(self, new: _Waiting, seconds: float) -> None:
        """Write a record later: else what was written between it and its like would look newest."""
        loop = asyncio.get_running_loop()
        self._postponed[new.subject] = loop.call_later(seconds, self._resume, new)

    def _resume(self, new: _Waiting) -> None:
        del self._postponed[new.subject]
        self._put(new)

    async def _attempt(self, client: ClusterClient, new: _Waiting) -> float:
        """Write a record or requeue it; return the seconds until the next attempt."""
        path, body = _path(new.record), self._event(new)
        try:
            client.expect(await client.request("POST", path, body=body), f"POST {path}")
        except ClusterError as error:
            return self._failed(new, error)
        except Exception:
            log.exception("internal error: an Event is lost", reason=new.record.reason)
            self._count(REFUSED)
            return self._backoff.pause()
        self._count(CREATED)
        self._written[new.content] = self._clock()
        self._written.move_to_end(new.content)
        self._shown[new.subject] = new
        self._shown.move_to_end(new.subject)
        for remembered in (self._written, self._shown):
            if len(remembered) > MAX_WRITTEN:
                remembered.popitem(last=False)
        self._backoff.reset()
        self._outage.ended()
        return 0.0

    def _event(self, new: _Waiting) -> dict[str, Any]:
        record = new.record
        about, time_text = record.object, _timestamp(new.time)
        involved = {
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "apiVersion": "v1",
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"accelbind.{secrets.token_hex(8)}",
                "namespace": about.namespace or "default",
            },
            "involvedObject": {key: value for key, value in involved.items() if value},
            "reason": record.reason,
            "message": clip(record.message, MAX_MESSAGE),
            "type": "Warning" if record.warning else "Normal",
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": time_text,
            "lastTimestamp": time_text,
            "count": 1,
        }

    def _failed(self, new: _Waiting, error: ClusterError) -> float:
        """Note why a record wasn't written; return the seconds until the next attempt."""
        again = isinstance(error, BadStatus) and error.status in {CONFLICT, UNAUTHORIZED}
        if not (again or will_pass(error)):
            self._count(REFUSED)
        elif new.subject in self._waiting:
            self._count(SUPERSEDED)
        else:
            self._waiting[new.subject] = new
            self._waiting.move_to_end(new.subject, last=False)
        self._outage.failed(str(error), waiting=len(self._waiting))
        return self._backoff.pause(requested_pause(error))


class _TokenBucket:
    def __init__(self, burst: int, seconds: float) -> None:
        self._burst = burst
        self._seconds = seconds
        self._tokens = float(burst)
        self._filled_at = time.monotonic()
        self.in_burst = True
        """Whether it has not been empty since it was full."""

    def has_token(self) -> bool:
        """Whether an Event may be written now."""
        now = time.monotonic()
        more = (now - self._filled_at) / self._seconds
        self._tokens, self._filled_at = min(self._burst, self._tokens + more), now
        if self._tokens < 1:
            self.in_burst = False
            return False
        self.in_burst = self.in_burst or self._tokens >= self._burst
        return True

    def spend(self) -> None:
        """Use the token that `has_token` has found."""
        self._tokens -= 1

    @property
    def seconds_left(self) -> float:
        """Until there is a token."""
        return max(0.0, (1 - self._tokens) * self._seconds)


def _kind_of(new: _Waiting) -> tuple[ObjectReference, str, bool]:
    return new.record.object, new.record.reason, new.record.warning


def _path(event: EventRecord) -> str:
    return f"/api/v1/namespaces/{quote(event.object.namespace or 'default', safe='')}/events"


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
