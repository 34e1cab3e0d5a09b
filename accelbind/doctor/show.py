"""How `accelbind doctor` shows what it found: a checklist for people, a document for programs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from accelbind.doctor.model import Line, Result, State
from accelbind.output import count
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


def lines(
    results: Sequence[Result], *, verbose: bool = False
) -> Iterator[tuple[State | None, str]]:
    """Yield the checklist for people, each line with the state that gives its colour.

    Args:
        results: The results of all checks.
        verbose: Whether to show each line of each check; otherwise checks that could not be made
            for the same reason are one, and so are lines of one group.
    """
    alike: dict[object, list[Result]] = {}
    for result in results:
        same = result.state is State.UNSEEN and not verbose
        alike.setdefault(tuple(result.lines) if same else id(result), []).append(result)
    for first, *others in alike.values():
        title = first.title
        if others:
            title = f"and {count(len(others), 'more check')} (--verbose lists them)"
        yield first.state, f"{MARKS[first.state].ljust(_WIDTH)}  {first.id}  {title}"
        yield from _of(first, verbose=verbose)
    yield None, ""
    counts = _counts(results)
    parts = [f"{counts[state]} {state}" for state in reversed(State) if state in counts]
    yield None, f"{len(results)} checks: {', '.join(parts) or 'none'}"


def _of(result: Result, *, verbose: bool) -> Iterator[tuple[State | None, str]]:
    """Yield a check's problems, or if there are none, what is well."""
    wrong = [line for line in result.lines if line.state not in {State.OK, State.SKIPPED}]
    found = wrong or result.lines
    shown = found if verbose else [*_grouped(found)]
    most = len(shown) if verbose else MOST
    for line in shown[:most]:
        yield line.state if wrong else None, f"{_BEFORE}{_marked(line)}"
        if line.todo:
            yield None, f"{_BEFORE}→ {plain(line.todo, _MESSAGE)}"
    if len(shown) > most:
        yield None, f"{_BEFORE}… and {len(shown) - most} more (--verbose lists them)"


def _grouped(found: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines, those of one group as one."""
    sizes = Counter(line.group for line in found)
    seen: set[str] = set()
    for line in found:
        if not line.group or sizes[line.group] == 1:
            yield line
        elif line.group not in seen:
            seen.add(line.group)
            what = f"{sizes[line.group]} {line.group} (--verbose lists them)"
            yield replace(line, what=what)


def _marked(line: Line) -> str:
    mark = "" if line.state in {State.OK, State.SKIPPED} else f"{line.state}: "
    return f"{mark}{plain(' '.join(line.what.split()), _MESSAGE)}"


def _counts(results: Sequence[Result]) -> Counter[str]:
    return Counter(result.state.value for result in results)
