"""What a look by `accelbind doctor` is, and how many of them are taken at once.

A check is a small function with a stable id that gives lines: what is so, and what to do where that
is not well. Each runs in a thread of its own with a deadline, so that one that hangs or has a
mistake in it hides no other; what several need is made once (`Once`).
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeVar

from services.process.blocking import BlockingCalls
from services.process.errors import AccelbindError

T = TypeVar("T")

MAX_LINES: Final = 500
"""Of one check: a node with more broken devices than this is described well enough."""


class State(StrEnum):
    """How it is, the worst last."""

    SKIPPED = "skipped"
    """There is nothing of the kind here."""
    OK = "ok"
    UNSEEN = "unseen"
    """It couldn't be looked at, or not as a whole."""
    WARNING = "warning"
    """It works, and somebody should know."""
    FAILED = "failed"


_ORDER: Final = tuple(State)
_HANGS: Final = (
    "something hangs: the log of the kernel (dmesg) or of the process that is asked may tell;"
    " --time-limit waits longer"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a check says.

    Args:
        state: How it is.
        what: What is so, where.
        todo: What to do about it; empty where there is nothing to do.
        group: What lines of one kind have in common. Text output shows several of them as one,
            with their number before this text.
    """

    state: State
    what: str
    todo: str = ""
    group: str = ""


def ok(what: str) -> Line:
    """It is well."""
    return Line(State.OK, what)


def failed(what: str, todo: str) -> Line:
    """It isn't."""
    return Line(State.FAILED, what, todo)


def warning(what: str, todo: str, group: str = "") -> Line:
    """It is, with a but."""
    return Line(State.WARNING, what, todo, group)


def unseen(what: str, todo: str = "") -> Line:
    """It couldn't be looked at."""
    return Line(State.UNSEEN, what, todo)


def skipped(what: str) -> Line:
    """It isn't used here."""
    return Line(State.SKIPPED, what)


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at.

    Args:
        id: Stable: scripts name it.
        title: What is asked.
        look: Gives the lines; may raise.
        grows: Whether it takes the longer the more there is to look at: being late is then no
            sign that something hangs.
    """

    id: str
    title: str
    look: Callable[[], Iterable[Line]]
    grows: bool = False


@dataclass(slots=True)
class Result:
    """What came of a check.

    Args:
        id: The check's.
        title: The check's.
        lines: What it says, at least one.
        seconds: How long it took.
    """

    id: str
    title: str
    lines: list[Line]
    seconds: float = 0.0

    @property
    def state(self) -> State:
        """The worst of its lines."""
        return max((line.state for line in self.lines), key=_ORDER.index)


class Unseen(AccelbindError):
    """What a check needs can't be looked at by us; the text says what it takes."""


class Once(Generic[T]):
    """Something that several checks need: made by the first who asks, given to all.

    Args:
        make: Makes it; what it raises, all get.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: list[T] = []
        self._error: Exception | None = None

    def __call__(self) -> T:
        """What was made."""
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


@dataclass(slots=True)
class _Run:
    check: Check
    began: float = field(default_factory=time.monotonic)
    lines: list[Line] = field(default_factory=list)
    seconds: float | None = None

    def __call__(self) -> None:
        _look(self.check, self.lines)
        self.seconds = time.monotonic() - self.began


def run(checks: Sequence[Check], seconds: float) -> list[Result]:
    """What comes of checks, in their order.

    Args:
        checks: What to look at.
        seconds: How long each may take. One that takes longer keeps its thread, which ends with
            the process.
    """
    runs = [_Run(check) for check in checks]
    calls = {each.check.id: each for each in runs}
    BlockingCalls().run_each(calls, timeout=seconds, what="a check")
    return [_result(each, seconds) for each in runs]


def _result(run: _Run, seconds: float) -> Result:
    """What came of a check, with what it said before it was late."""
    lines = [*run.lines]
    if run.seconds is None:
        told = f"no answer within {seconds:g} s"
        if run.check.grows:
            lines.append(unseen(told, "--time-limit waits longer"))
        else:
            lines.append(failed(told, _HANGS))
    return Result(run.check.id, run.check.title, lines, run.seconds or seconds)


def _look(check: Check, lines: list[Line]) -> None:
    """Adds what a check says to lines, whatever happens."""
    try:
        for line in check.look():
            lines.append(line)
            if len(lines) == MAX_LINES:
                lines.append(unseen(f"only the first {MAX_LINES} are shown"))
                break
        else:
            if not lines:
                lines.append(ok("nothing is wrong"))
    except Exception as error:  # noqa: BLE001 - what is wrong with one check must not hide others
        lines.append(_told(error))


def _told(error: Exception) -> Line:
    """What an error says of what a check looked at."""
    if isinstance(error, Unseen):
        return unseen(str(error))
    denied = error if isinstance(error, PermissionError) else error.__cause__
    if isinstance(denied, PermissionError):
        return unseen(f"{denied.filename or error}: no permission", "run it as root")
    if isinstance(error, AccelbindError):
        return failed(str(error), "mend that, and look again")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return failed(f"{where}{error.strerror or error}", "mend that, and look again")
    return unseen(
        f"accelbind has made a mistake here: {type(error).__name__}: {error}",
        "the other checks count; please report this one",
    )
