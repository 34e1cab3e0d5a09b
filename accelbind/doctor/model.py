"""Checks of `accelbind doctor`, and how they are run.

A check is a stable id, and a function that takes a subject (a node, a cluster) and yields lines.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, Self, TypeVar

from services.process.blocking import DaemonExecutor
from services.process.errors import AccelbindError

T = TypeVar("T")

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
    """What to do about it; every failed line has it."""


ok = partial(Line, CheckStatus.OK)
failed = partial(Line, CheckStatus.FAILED)
warning = partial(Line, CheckStatus.WARNING)
unseen = partial(Line, CheckStatus.UNSEEN)
skipped = partial(Line, CheckStatus.SKIPPED)


class Unseen(AccelbindError):
    """Something that a check needs can't be read; the text says what is missing."""


class CheckTarget:
    """The node or cluster that is checked, with the values that several checks need."""

    def __init__(self) -> None:
        self._values: dict[Any, Future[Any]] = {}
        self._lock = threading.Lock()

    def once(self, make: Callable[[Self], T]) -> T:
        """The result or the error of a function of this subject, which is called once."""
        # Several checks may want it at the same time.
        with self._lock:
            is_first = make not in self._values
            value: Future[T] = self._values.setdefault(make, Future())
        if is_first:
            try:
                value.set_result(make(self))
            except Exception as error:  # noqa: BLE001 - raised below, for every caller
                value.set_exception(error)
        return value.result()


@dataclass(frozen=True, slots=True)
class Check:
    """A question about a subject."""

    id: str
    """Scripts name it."""
    title: str
    find: Callable[[], Iterable[Line]]
    grows: bool = False
    """Whether it takes longer where there is more to read; then a time-out means no hanging."""


@dataclass(frozen=True, slots=True)
class Result:
    """The lines of a check."""

    id: str
    title: str
    lines: Sequence[Line]
    """At least one."""
    seconds: float = 0.0

    @property
    def state(self) -> CheckStatus:
        """The worst of its lines."""
        return max((line.state for line in self.lines), key=_ORDER.index)


def run_checks(checks: Sequence[Check], seconds: float) -> list[Result]:
    """Run checks in parallel, each for so many seconds at most; the results are in order."""
    lines: dict[str, list[Line]] = {check.id: [] for check in checks}
    # A thread each: a check that hangs hides no other, and does not keep the process from ending.
    executor = DaemonExecutor()
    futures = [executor.submit(_collect, check, lines[check.id]) for check in checks]
    wait(futures, timeout=seconds)
    return [
        _result(check, lines[check.id], future.result() if future.done() else None, seconds)
        for check, future in zip(checks, futures, strict=True)
    ]


def _result(check: Check, lines: list[Line], duration: float | None, limit: float) -> Result:
    if duration is None:  # it has not ended
        return Result(check.id, check.title, [*lines, _timeout(check, limit)], limit)
    return Result(check.id, check.title, lines, duration)


def _timeout(check: Check, seconds: float) -> Line:
    text = f"no answer within {seconds:g} s"
    if check.grows:
        return unseen(text, "raise --time-limit")
    return failed(text, "something hangs: see dmesg and the logs, or raise --time-limit")


def _collect(check: Check, lines: list[Line]) -> float:
    """Append the lines of a check; return the seconds that it took."""
    started = time.monotonic()
    try:
        for line in check.find():
            lines.append(line)  # noqa: PERF402 - those before a time-out are shown
    except Exception as error:  # noqa: BLE001 - one check's error must not hide other checks
        lines.append(_line(error))
    if not lines:
        lines.append(ok("no problems found"))
    return time.monotonic() - started


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
