import shutil
import sys
import time
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks import admission, measure, plugin, scan
from benchmarks.reviews import SIZES, different, index, review, strangers
from services.domain.mutation import Policy
from services.domain.review import Outcome, answer
from tests.benchmarks.quick import reduced
from tests.making import make
from tests.support import REPOSITORY


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in reduced():
        monkeypatch.setattr(module, name, value)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_make_bench_prints_a_table_of_each_and_draws_the_plot(tmp_path: Path) -> None:
    """All of it with little of everything, in a copy, so that the figures of here stay."""
    for name in ("benchmarks", "docs_build", "plugin", "services", "simulator", "webhook"):
        left = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=left)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    python = f"{sys.executable} {REPOSITORY / 'tests' / 'benchmarks' / 'quick.py'}"
    shown = make("bench", folder=tmp_path, python=python)
    assert "Python" in shown.splitlines()[0]
    assert [
        title for title, _ in bench.BENCHES.values() if title.partition(":")[0] not in shown
    ] == []
    assert [size for size in SIZES if size not in shown] == []
    assert sorted(path.name for path in (tmp_path / "docs" / "pictures").iterdir()) == [
        "admission-cost.json",
        "admission-cost.svg",
    ]
    some = make("bench", "BENCHES=plugin scan", folder=tmp_path, python=python)
    assert "Scan:" in some
    assert "Plugin:" in some
    assert "Webhook:" not in some


def test_all_benches_run_unless_some_are_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "BENCHES", dict.fromkeys(("a", "b"), ("Scan: again", scan)))
    bench.main()
    assert capsys.readouterr().out.count("Scan: again") == 2
    with pytest.raises(SystemExit, match="choose of a, b"):
        bench.main(["scans"])


def test_rows_have_as_many_cells_as_headings() -> None:
    assert {len(row) for row in admission.rows()} == {len(admission.HEADINGS)}
    assert {len(row) for row in scan.rows()} == {len(scan.HEADINGS)}


def test_a_figure_is_told_with_what_it_should_keep_to() -> None:
    values = [number / 1000 for number in range(100)]
    assert plugin.row("calls", values, 1e3, "ms", "3 ms") == (
        "calls",
        "49.50 ms",
        "99.00 ms",
        "99.00 ms",
        "3 ms",
    )


def test_a_plugin_is_measured_with_all_its_cards() -> None:
    rows = list(plugin.rows())
    assert {len(row) for row in rows} == {len(plugin.HEADINGS)}
    assert [row[0].partition(",")[0] for row in rows] == [
        "start to registered",
        "  of which at work",
        "  beside it",
        "resident then",
        "start to registered",
        "  of which at work",
        "  beside it",
        "resident then",
        "Allocate",
        "a call that does nothing",
        "a card goes",
        "a card comes",
        "registered again after the kubelet",
        "CPU while idle",
        "resident after all that",
    ]


def test_reviews_grow() -> None:
    sizes = [len(review(size)) for size in SIZES]
    assert sizes == sorted(sizes)
    assert 3_000 < sizes[0] < 6_000
    assert 40_000 < sizes[-1] < 60_000


def test_no_two_reviews_are_alike() -> None:
    reviews = different(review("medium"), 20)
    assert len(set(reviews)) == 20
    sizes = [len(body) for body in reviews]
    assert max(sizes) - min(sizes) < 0.1 * min(sizes)
    assert {answer(body, index(3), Policy(), validating=False).outcome for body in reviews} == {
        Outcome.PATCHED
    }


def test_strangers_ask_each_for_something_else_in_another_namespace() -> None:
    answers = [
        answer(body, index(6, 6), Policy(), validating=False)
        for body in strangers(review("small"), 5)
    ]
    assert {found.outcome for found in answers} == {Outcome.PATCHED}
    assert len({found.namespace for found in answers}) == 5
    assert len({rewrite.logical for found in answers for rewrite in found.rewrites}) == 5


def test_mappings_are_spread_over_namespaces() -> None:
    made = index(100, namespaces=10)
    assert len(made) == 100
    assert len(made.namespaces) == 10


def test_timing_is_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "ROUND_SECONDS", 0.01)
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock) * 0.5)
    timing = measure.time_calls(lambda: None)
    assert (timing.fastest, timing.median, timing.slowest) == (0.5, 0.5, 0.5)
