"""The benches run, on reviews of the documented sizes; no test asks how fast anything is."""

from typing import Any

import pytest

from tools.bench import __main__ as bench
from tools.bench import admission, measure, plugin, scan, serving, webhook

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
