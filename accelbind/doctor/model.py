"""Checks of `accelbind doctor`, and how they are run.

A check is a row: a stable id, a question, and a function that takes the subject, a node or a
cluster, and yields lines. Each runs in its own thread with a deadline, so that a check that hangs
or crashes hides no other.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

from services.process.blocking import BlockingCalls
from services.process.errors import AccelbindError

S = TypeVar("S", bound="Subject")
T = TypeVar("T")

MAX_LINES: Final = 500
"""Of one check."""

AS_ROOT: Final = "run it as root"
_FIX: Final = "fix this and run the doctor again"


class CheckStatus(StrEnum):
    """The result of a check, the worst last."""

    SKIPPED = "skipped"
    """Does not apply here."""
    OK = "ok"
    UNSEEN = "unseen"
    """Could not be checked, or not completely."""
    WARNING = "warning"
    """Works, but somebody should know."""
    FAILED = "failed"


_ORDER: Final = tuple(CheckStatus)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a check found."""

    state: CheckStatus
    what: str
    todo: str = ""
    """What to do about it."""
    group: str = ""
    """What lines of one kind have in common. Text output shows several of them as one line: their
    number and this text."""


def ok(what: str) -> Line:
    """A line that says that something is well."""
    return Line(CheckStatus.OK, what)


def failed(what: str, todo: str) -> Line:
    """A line about a fault."""
    return Line(CheckStatus.FAILED, what, todo)


def warning(what: str, todo: str, group: str = "") -> Line:
    """A line about something that is no fault, but unusual."""
    return Line(CheckStatus.WARNING, what, todo, group)


def unseen(what: str, todo: str = "") -> Line:
    """A line about something that could not be checked."""
    return Line(CheckStatus.UNSEEN, what, todo)


def skipped(what: str) -> Line:
    """A line about something that is not used here."""
    return Line(CheckStatus.SKIPPED, what)


class Unseen(AccelbindError):
    """Something that a check needs can't be read; the text says what is missing."""


class SharedValue(Generic[T]):
    """A value that several checks need: the first one makes it, all others get it, or its error."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: list[T] = []
        self._error: Exception | None = None

    def __call__(self) -> T:
        """The value."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._made:
                try:
                    self._made.append(self._make())
                except Exception as error:
                    self._error = error
                    raise
            return self._made[0]


class Subject:
    """What is checked, with the values that several checks need."""

    def __init__(self) -> None:
        self._shared: dict[Any, SharedValue[Any]] = {}
        self._lock = threading.Lock()

    def once(self, make: Callable[[Self], T]) -> T:
        """What a function of this subject returns, which is called once."""
        with self._lock:
            found: SharedValue[T] = self._shared.setdefault(make, SharedValue(partial(make, self)))
        return found()


@dataclass(frozen=True, slots=True)
class Check:
    """A question about a subject."""

    id: str
    """Stable: scripts name it."""
    title: str
    find: Callable[[], Iterable[Line]]
    grows: bool = False
    """Whether it takes longer where there is more to read; then a time-out means no hanging."""


@dataclass(slots=True)
class Result:
    """What a check found."""

    id: str
    title: str
    lines: list[Line]
    """At least one."""
    seconds: float = 0.0

    @property
    def state(self) -> CheckStatus:
        """The worst of its lines."""
        return max((line.state for line in self.lines), key=_ORDER.index)


@dataclass(slots=True)
class _Run:
    check: Check
    started: float = field(default_factory=time.monotonic)
    lines: list[Line] = field(default_factory=list)
    seconds: float | None = None

    def __call__(self) -> None:
        _collect(self.check, self.lines)
        self.seconds = time.monotonic() - self.started


def run_checks(checks: Sequence[Check], seconds: float) -> list[Result]:
    """Run checks in parallel and return their results in order.

    Args:
        checks: The checks.
        seconds: How long each may take. The thread of one that takes longer ends with the process.
    """
    runs = [_Run(check) for check in checks]
    calls = {each.check.id: each for each in runs}
    BlockingCalls().run_each(calls, timeout=seconds, what="a check")
    return [_result(each, seconds) for each in runs]


def _result(run: _Run, seconds: float) -> Result:
    """The result of a check, with the lines that it gave before a time-out."""
    lines = [*run.lines]
    if run.seconds is None:
        text = f"no answer within {seconds:g} s"
        if run.check.grows:
            lines.append(unseen(text, "raise --time-limit"))
        else:
            lines.append(
                failed(text, "something hangs: see dmesg and the logs, or raise --time-limit")
            )
    return Result(run.check.id, run.check.title, lines, run.seconds or seconds)


def _collect(check: Check, lines: list[Line]) -> None:
    """Append the lines of a check, or what keeps it from giving any."""
    try:
        for line in check.find():
            lines.append(line)
            if len(lines) == MAX_LINES:
                lines.append(unseen(f"only the first {MAX_LINES} are shown"))
                break
        else:
            if not lines:
                lines.append(ok("no problems found"))
    except Exception as error:  # noqa: BLE001 - one check's error must not hide other checks
        lines.append(_line(error))


def _line(error: Exception) -> Line:
    if isinstance(error, Unseen):
        return unseen(str(error))
    denied = error if isinstance(error, PermissionError) else error.__cause__
    if isinstance(denied, PermissionError):
        return unseen(f"{denied.filename or error}: no permission", AS_ROOT)
    if isinstance(error, AccelbindError):
        return failed(str(error), _FIX)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return failed(f"{where}{error.strerror or error}", _FIX)
    return unseen(
        f"internal error: {type(error).__name__}: {error}",
        "please report it; the other checks are valid",
    )
