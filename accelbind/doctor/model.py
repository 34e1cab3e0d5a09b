"""Checks of `accelbind doctor`, and how one is run.

A check is a stable id, and a function that takes a subject (a node, a cluster) and yields lines.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias, TypeVar

from accelbind.output import error_text
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


Check: TypeAlias = Callable[[T], Iterable[Line]]

ok = partial(Line, CheckStatus.OK)
failed = partial(Line, CheckStatus.FAILED)
warning = partial(Line, CheckStatus.WARNING)
unseen = partial(Line, CheckStatus.UNSEEN)
skipped = partial(Line, CheckStatus.SKIPPED)


class Unseen(AccelbindError):
    """Something that a check needs can't be read; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Result:
    """The lines of a check, at least one."""

    id: str
    """Scripts name it."""
    title: str
    lines: Sequence[Line]

    @property
    def state(self) -> CheckStatus:
        """The worst of its lines."""
        return max((line.state for line in self.lines), key=_ORDER.index)


def run_check(name: str, check: Check[T], subject: T) -> Result:
    """The result of one check, whose docstring is the question that it answers."""
    lines: list[Line] = []
    try:
        lines.extend(check(subject))
    # One check's error must hide neither others, nor the lines before it.
    except Exception as error:  # noqa: BLE001
        lines.append(_line(error))
    return Result(name, question(check), lines or [ok("no problems found")])


def question(check: object) -> str:
    """The question that a check answers."""
    return (check.__doc__ or "").rstrip(".")


def _line(error: Exception) -> Line:
    if isinstance(error, Unseen):
        return unseen(str(error))
    denied = error if isinstance(error, PermissionError) else error.__cause__
    if isinstance(denied, PermissionError):
        return unseen(f"{denied.filename or error}: no permission", AS_ROOT)
    if isinstance(error, AccelbindError | OSError):
        return failed(error_text(error), _FIX)
    return unseen(error_text(error), "please report it; the other checks are valid")
