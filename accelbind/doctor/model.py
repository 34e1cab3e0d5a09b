"""Checks of `accelbind doctor`, and how they are run.

A check is a stable id, and a function that takes a subject (a node, a cluster) and yields lines.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, Self, TypeVar

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
        self._values: dict[Any, tuple[Any, AccelbindError | None]] = {}

    def once(self, make: Callable[[Self], T]) -> T:
        """The result or the error of a function of this subject, which is called once."""
        if make not in self._values:
            try:
                self._values[make] = make(self), None
            except AccelbindError as error:
                self._values[make] = None, error
        value: T
        value, failure = self._values[make]
        if failure:
            raise failure
        return value


@dataclass(frozen=True, slots=True)
class Check:
    """A question about a subject."""

    id: str
    """Scripts name it."""
    title: str
    find: Callable[[], Iterable[Line]]


@dataclass(frozen=True, slots=True)
class Result:
    """The lines of a check."""

    id: str
    title: str
    lines: Sequence[Line]
    """At least one."""

    @property
    def state(self) -> CheckStatus:
        """The worst of its lines."""
        return max((line.state for line in self.lines), key=_ORDER.index)


def run_checks(checks: Sequence[Check]) -> list[Result]:
    """Run checks one after the other."""
    return [Result(check.id, check.title, [*_lines(check)]) for check in checks]


def _lines(check: Check) -> Iterator[Line]:
    is_silent = True
    try:
        for line in check.find():
            is_silent = False
            yield line
    except Exception as error:  # noqa: BLE001 - one check's error must not hide other checks
        yield _line(error)
        return
    if is_silent:
        yield ok("no problems found")


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
