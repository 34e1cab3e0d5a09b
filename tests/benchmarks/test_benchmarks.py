import time

import pytest

from benchmarks import __main__ as bench
from benchmarks import admission, measure, plugin, scan, serving, sync
from benchmarks.reviews import SIZES, different, index, review
from services.domain.mutation import Policy
from services.domain.review import Outcome, answer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "ROUND_SECONDS", 1e-5)
    monkeypatch.setattr(measure, "ROUNDS", 3)
    monkeypatch.setattr(admission, "MANY", 20)
    monkeypatch.setattr(scan, "COUNTS", (1, 3))
    monkeypatch.setattr(serving, "MANY", ((20, 2),))
    for name in ("ROUNDS", "LATE_ROUNDS", "CONNECTIONS", "DIFFERENT"):
        monkeypatch.setattr(serving, name, 2)
    monkeypatch.setattr(serving, "REQUESTS", 3)
    monkeypatch.setattr(sync, "NUMBER", 2000)
    monkeypatch.setattr(sync, "CHANGES", 10)
    for name, value in (("CARDS", 2), ("STARTS", 1), ("EVENTS", 2), ("CALLS", 10), ("RESTARTS", 1)):
        monkeypatch.setattr(plugin, name, value)
    monkeypatch.setattr(plugin, "IDLE_SECONDS", 0.2)


@pytest.mark.parametrize("name", list(bench.BENCHES))
def test_every_bench_prints_a_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bench.main([name])
    shown = capsys.readouterr().out
    assert "Python" in shown.splitlines()[0]
    titles = [title.partition(":")[0] in shown for title, _ in bench.BENCHES.values()]
    assert titles == [name == other for other in bench.BENCHES]
    if name in {"admission", "serving"}:
        for size in SIZES:
            assert size in shown


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
