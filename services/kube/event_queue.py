"""What is to be written as Kubernetes Events: one object a subject and reason, the latest first.

Something that happens again and again is one Event object with a count (a *series*), as kubelets
do it. What waits to be written is bounded: of a subject (a device, a card) only the latest state
waits, so that an API server that was away for long is told what is the case and not all that was.
The times and counts in a series are those of what happened, whenever it is written.

No I/O and no clock of its own: `services.kube.events` asks it what to do next.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

WAITING: Final = 256
"""Subjects that may wait to be written."""

SERIES: Final = 1024
"""Series that are remembered, to be counted on."""

SUPERSEDED: Final = "superseded"
"""Outcome of what was never written, since something newer about the same subject was there."""

DROPPED: Final = "dropped"
"""Outcome of what was never written, since too much waited."""


@dataclass(frozen=True, slots=True)
class Involved:
    """The object that an Event is about.

    Args:
        kind: `Node`, `Pod`, …
        name: Its name.
        namespace: Its namespace; empty for what has none, such as a node.
        uid: Its uid, where known.
        api_version: The version of its kind.
        field_path: Which part of it, such as `spec.containers{main}`.
    """

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"
    field_path: str = ""


def node(name: str) -> Involved:
    """A node as Events of nodes name it: kubectl describe looks for its name as uid."""
    return Involved("Node", name, uid=name)


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened.

    Args:
        about: The object it happened to.
        subject: What of that object; only the latest of a subject is worth writing.
        reason: A word in CamelCase, for machines.
        message: A sentence for people.
        warning: Whether it is one; other Events are `Normal`.
    """

    about: Involved
    subject: str
    reason: str
    message: str
    warning: bool = True


@dataclass(slots=True)
class Series:
    """One reason about one subject, however often.

    Args:
        latest: What happened last.
        first: When it happened first, in seconds of the epoch.
        last: When it happened last.
        count: How often.
        name: The Event object's name, once there is one.
        written_at: When it was written last; 0 if never.
    """

    latest: Happening
    first: float
    last: float
    count: int = 0
    name: str = ""
    written_at: float = 0.0


_Subject = tuple[Involved, str]


class EventQueue:
    """What waits, and what is remembered of what was written.

    Args:
        counted: Told the outcome of what will never be written.
        waiting: Subjects that may wait.
        remembered: Series that are remembered.
    """

    def __init__(
        self,
        counted: Callable[[str], None],
        *,
        waiting: int = WAITING,
        remembered: int = SERIES,
    ) -> None:
        self._counted = counted
        self._most = waiting
        self._remembered = remembered
        self._series: OrderedDict[tuple[_Subject, str], Series] = OrderedDict()
        self._waiting: OrderedDict[_Subject, Series] = OrderedDict()
        self._shown: OrderedDict[_Subject, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, happening: Happening, now: float) -> None:
        """Takes what happened.

        Args:
            happening: What.
            now: When, in seconds of the epoch.
        """
        subject = happening.about, happening.subject
        series = self._series_of(subject, happening, now)
        series.latest, series.last, series.count = happening, now, series.count + 1
        before = self._waiting.get(subject)
        if before is not None:
            self._counted(SUPERSEDED)
        self._waiting[subject] = series
        if len(self._waiting) > self._most:
            self._waiting.popitem(last=False)
            self._counted(DROPPED)

    def take(self) -> Series | None:
        """What to write next; None if nothing waits."""
        return self._waiting.popitem(last=False)[1] if self._waiting else None

    def put_back(self, series: Series) -> None:
        """Lets something wait that couldn't be written, unless something newer does already."""
        subject = series.latest.about, series.latest.subject
        if subject in self._waiting:
            self._counted(SUPERSEDED)
            return
        self._waiting[subject] = series
        self._waiting.move_to_end(subject, last=False)

    def written(self, series: Series, name: str, now: float) -> None:
        """Notes that a series was written, as the Event object of this name."""
        series.name, series.written_at = name, now
        subject = series.latest.about, series.latest.subject
        self._shown[subject] = series.latest.reason
        self._shown.move_to_end(subject)
        if len(self._shown) > self._remembered:
            self._shown.popitem(last=False)

    def shown(self, series: Series) -> bool:
        """Whether the last thing written about a subject is this series."""
        latest = series.latest
        return self._shown.get((latest.about, latest.subject)) == latest.reason

    def _series_of(self, subject: _Subject, happening: Happening, now: float) -> Series:
        key = subject, happening.reason
        series = self._series.setdefault(key, Series(happening, now, now))
        self._series.move_to_end(key)
        if len(self._series) > self._remembered:
            self._series.popitem(last=False)
        return series
