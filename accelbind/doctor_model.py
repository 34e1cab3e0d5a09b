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

from services.domain.errors import AccelbindError

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


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a check says.

    Args:
        state: How it is.
        what: What is so, where.
        todo: What to do about it; empty where there is nothing to do.
    """

    state: State
    what: str
    todo: str = ""


def ok(what: str) -> Line:
    """It is well."""
    return Line(State.OK, what)


def failed(what: str, todo: str) -> Line:
    """It isn't."""
    return Line(State.FAILED, what, todo)


def warning(what: str, todo: str) -> Line:
    """It is, with a but."""
    return Line(State.WARNING, what, todo)


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
    """

    id: str
    title: str
    look: Callable[[], Iterable[Line]]


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
    result: Result | None = None

    def __call__(self) -> None:
        lines = _lines_of(self.check)
        seconds = time.monotonic() - self.began
        self.result = Result(self.check.id, self.check.title, lines, seconds)


def run(checks: Sequence[Check], seconds: float) -> list[Result]:
    """What comes of checks, in their order.

    Args:
        checks: What to look at.
        seconds: How long each may take. One that takes longer keeps its thread, which ends with
            the process.
    """
    runs = [_Run(check) for check in checks]
    threads = [threading.Thread(target=each, name=each.check.id, daemon=True) for each in runs]
    for thread in threads:
        thread.start()
    for each, thread in zip(runs, threads, strict=True):
        thread.join(max(0.0, each.began + seconds - time.monotonic()))
    return [each.result or _late(each.check, seconds) for each in runs]


def _late(check: Check, seconds: float) -> Result:
    line = failed(
        f"no answer within {seconds:g} s",
        "something hangs: the log of the kernel (dmesg) or of the process that is asked may tell;"
        " --time-limit waits longer",
    )
    return Result(check.id, check.title, [line], seconds)


def _lines_of(check: Check) -> list[Line]:
    lines: list[Line] = []
    try:
        for line in check.look():
            lines.append(line)
            if len(lines) == MAX_LINES:
                lines.append(unseen(f"only the first {MAX_LINES} are shown"))
                break
    except Unseen as error:
        lines.append(unseen(str(error)))
    except PermissionError as error:
        lines.append(unseen(f"{error.filename}: no permission", "run it as root"))
    except AccelbindError as error:
        lines.append(failed(str(error), "mend that, and look again"))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        lines.append(failed(f"{where}{error.strerror or error}", "mend that, and look again"))
    except Exception as error:  # noqa: BLE001 - a mistake in one check must not hide the others
        told = f"accelbind has made a mistake here: {type(error).__name__}: {error}"
        lines.append(unseen(told, "the other checks count; please report this one"))
    return lines or [ok("nothing is wrong")]
