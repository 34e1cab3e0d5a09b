"""How `accelbind doctor` shows what it found: a checklist for people, a document for programs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from accelbind.doctor.model import Line, Result, State
from services.process.text import plain

MOST: Final = 20
"""Lines of one check that people are shown; programs get them all."""

MARKS: Final = {
    State.OK: "ok",
    State.WARNING: "warning",
    State.FAILED: "FAILED",
    State.UNSEEN: "unseen",
    State.SKIPPED: "-",
}
COLOURS: Final = {State.WARNING: "yellow", State.FAILED: "red", State.UNSEEN: "cyan"}
_WIDTH: Final = max(map(len, MARKS.values()))
_BEFORE: Final = " " * (_WIDTH + 2)
_MESSAGE: Final = 1200


def document(results: Sequence[Result]) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "ok": all(result.state is not State.FAILED for result in results),
        "counts": {state.value: 0 for state in State} | _counts(results),
        "checks": [
            {
                "id": result.id,
                "title": result.title,
                "state": result.state.value,
                "seconds": round(result.seconds, 3),
                "lines": [
                    {"state": line.state.value, "what": line.what, "todo": line.todo}
                    for line in result.lines
                ],
            }
            for result in results
        ],
    }


def lines(results: Sequence[Result]) -> Iterator[tuple[State | None, str]]:
    """All of it, for people: each line with the state that colours it."""
    for result in results:
        yield result.state, f"{MARKS[result.state].ljust(_WIDTH)}  {result.id}  {result.title}"
        yield from _of(result)
    yield None, ""
    counts = _counts(results)
    parts = [f"{counts[state]} {state}" for state in reversed(State) if state in counts]
    yield None, f"{len(results)} checks: {', '.join(parts) or 'none'}"


def _of(result: Result) -> Iterator[tuple[State | None, str]]:
    """A check's lines: all that is wrong, and what is well only where nothing is."""
    wrong = [line for line in result.lines if line.state not in {State.OK, State.SKIPPED}]
    told = wrong or result.lines
    for line in told[:MOST]:
        yield line.state if wrong else None, f"{_BEFORE}{_marked(line)}"
        if line.todo:
            yield None, f"{_BEFORE}→ {plain(line.todo, _MESSAGE)}"
    if len(told) > MOST:
        yield None, f"{_BEFORE}… and {len(told) - MOST} more: -o json shows them all"


def _marked(line: Line) -> str:
    mark = "" if line.state in {State.OK, State.SKIPPED} else f"{line.state}: "
    return f"{mark}{plain(line.what, _MESSAGE)}"


def _counts(results: Sequence[Result]) -> Counter[str]:
    return Counter(result.state.value for result in results)
