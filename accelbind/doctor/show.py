"""How `accelbind doctor` shows results: a checklist for people, a document for programs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from accelbind.doctor.model import CheckStatus, Result
from accelbind.output import StyledLine
from services.process.text import count, plain

MOST: Final = 20
"""Lines of one check in text output, unless it is verbose."""

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
_MORE: Final = "(--verbose lists them)"


def document(results: Sequence[Result]) -> dict[str, Any]:
    """The results for programs."""
    return {
        "ok": not {CheckStatus.FAILED, CheckStatus.UNSEEN} & {each.state for each in results},
        "counts": {state.value: 0 for state in CheckStatus} | _counts(results),
        "checks": [
            {
                "id": result.id,
                "title": result.title,
                "state": result.state,
                "lines": [
                    {"state": line.state, "what": line.what, "todo": line.todo}
                    for line in result.lines
                ],
            }
            for result in results
        ],
    }


def lines(results: Sequence[Result], *, verbose: bool = False) -> Iterator[StyledLine]:
    """Yield the checklist for people."""
    # Checks that could not be made for one cause are shown as one, unless it is verbose.
    alike: dict[object, list[Result]] = {}
    for result in results:
        is_alike = result.state is CheckStatus.UNSEEN and not verbose
        alike.setdefault(tuple(result.lines) if is_alike else result.id, []).append(result)
    for first, *others in alike.values():
        title = f"and {count(len(others), 'more check')} {_MORE}" if others else first.title
        text = f"{MARKS[first.state].ljust(_WIDTH)}  {first.id}  {title}"
        yield COLOURS.get(first.state), text
        yield from _result_lines(first, verbose=verbose)
    yield None, ""
    counts = _counts(results)
    parts = [f"{counts[state]} {state}" for state in reversed(CheckStatus) if state in counts]
    yield None, f"{count(len(results), 'check')}: {', '.join(parts) or 'none'}"


def _result_lines(result: Result, *, verbose: bool) -> Iterator[StyledLine]:
    # The problems of a check, or if there are none, what is well.
    shown = [line for line in result.lines if line.state not in _FINE] or result.lines
    most = len(shown) if verbose else MOST
    for line in shown[:most]:
        mark = "" if line.state in _FINE else f"{line.state}: "
        text = plain(" ".join(line.what.split()), _MESSAGE)
        yield COLOURS.get(line.state), f"{_INDENT}{mark}{text}"
        if line.todo:
            yield None, f"{_INDENT}→ {plain(line.todo, _MESSAGE)}"
    if len(shown) > most:
        yield None, f"{_INDENT}… and {len(shown) - most} more {_MORE}"


def _counts(results: Sequence[Result]) -> Counter[str]:
    return Counter(result.state.value for result in results)
