"""How `accelbind doctor` shows results: a checklist for people, a document for programs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from accelbind.doctor.model import CheckStatus, Result
from accelbind.output import StyledLine
from services.process.text import count, plain

MOST: Final = 20
"""Lines of one check in text output."""

MARKS: Final = {
    CheckStatus.OK: "ok",
    CheckStatus.WARNING: "warning",
    CheckStatus.FAILED: "FAILED",
    CheckStatus.UNSEEN: "unseen",
    CheckStatus.SKIPPED: "-",
}
COLOURS: Final = {
    CheckStatus.WARNING: "yellow",
    CheckStatus.FAILED: "red",
    CheckStatus.UNSEEN: "cyan",
}
_FINE: Final = frozenset({CheckStatus.OK, CheckStatus.SKIPPED})
_WIDTH: Final = max(map(len, MARKS.values()))
_INDENT: Final = " " * (_WIDTH + 2)
_MESSAGE: Final = 1200


def document(results: Sequence[Result]) -> dict[str, Any]:
    """The results for programs."""
    return {
        "ok": not {CheckStatus.FAILED, CheckStatus.UNSEEN} & {each.state for each in results},
        "counts": {state.value: 0 for state in CheckStatus} | _counts(results),
        "checks": [msgspec.to_builtins(each) | {"state": each.state} for each in results],
    }


def lines(results: Sequence[Result]) -> Iterator[StyledLine]:
    """Yield the checklist for people."""
    for result in results:
        text = f"{MARKS[result.state].ljust(_WIDTH)}  {result.id}  {result.title}"
        yield COLOURS.get(result.state), text
        yield from _result_lines(result)
    yield None, ""
    counts = _counts(results)
    parts = [f"{counts[state]} {state}" for state in reversed(CheckStatus) if state in counts]
    yield None, f"{count(len(results), 'check')}: {', '.join(parts) or 'none'}"


def _result_lines(result: Result) -> Iterator[StyledLine]:
    # The problems of a check, or if there are none, what is well.
    shown = [line for line in result.lines if line.state not in _FINE] or result.lines
    for line in shown[:MOST]:
        mark = "" if line.state in _FINE else f"{line.state}: "
        text = plain(" ".join(line.what.split()), _MESSAGE)
        yield COLOURS.get(line.state), f"{_INDENT}{mark}{text}"
        if line.todo:
            yield None, f"{_INDENT}→ {plain(line.todo, _MESSAGE)}"
    if len(shown) > MOST:
        yield None, f"{_INDENT}… and {len(shown) - MOST} more (-o json lists them)"


def _counts(results: Sequence[Result]) -> Counter[str]:
    return Counter(result.state.value for result in results)
