"""The benches run, on reviews of the documented sizes; no test asks how fast anything is."""

from typing import Any

import pytest

from services.admission.mutate import Policy
from services.admission.pod_review import answer
from services.pods.reasons import ReviewOutcome
from tools.bench import __main__ as bench
from tools.bench import admission, measure, plugin, scan, serving, webhook
from tools.bench.reviews import SIZES, different, index, review

LITTLE: dict[Any, dict[str, Any]] = {
    measure: {"ROUND_SECONDS": 1e-5},
    admission: {"MANY": ((20, 1), (20, 2), (20, 2, 3)), "TURNS": 2},
    scan: {"COUNTS": (1, 3)},
    serving: {"REQUESTS": 3, "ROUNDS": 2, "DIFFERENT": 2},
    webhook: {"MAPPINGS": ((0, 1), (600, 3))},
    plugin: {"COUNT": 2, "EVENTS": 2, "STARTS": 1, "RESTARTS": 1, "CALLS": 10, "IDLE_SECONDS": 0.2},
}
"""Small numbers, with which a bench takes seconds."""


@pytest.mark.soak
@pytest.mark.parametrize("name", bench.BENCHES)
def test_a_bench_runs_with_a_cell_a_heading(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, numbers in LITTLE.items():
        for number, value in numbers.items():
            monkeypatch.setattr(module, number, value)
    _, module = bench.BENCHES[name]
    rows = list(module.rows())
    assert {len(row) for row in rows} == {len(module.HEADINGS)}


def test_reviews_have_the_sizes_that_are_told() -> None:
    assert [round(len(review(size)), -3) for size in SIZES] == [5_000, 13_000, 47_000, 57_000]


def test_no_two_reviews_are_alike_and_all_are_patched() -> None:
    reviews = different(review("medium"), 20)
    assert len(set(reviews)) == 20
    answers = [answer(body, index(3), Policy(), validating=False) for body in reviews]
    assert {found.outcome for found in answers} == {ReviewOutcome.PATCHED}
