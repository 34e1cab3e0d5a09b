"""The dashboard is shown as it is: each panel, with figures that the processes showed in a run."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from docs_build import dashboard, metrics
from docs_build.promql import BadQuery, ask
from docs_build.recording import Recorder
from docs_build.samples import Samples, Series, read, text_of
from tests.support import REPOSITORY

BOARD = REPOSITORY / "manifests" / "components" / "monitoring" / "dashboard.json"
PANELS = [each for each in json.loads(BOARD.read_text())["panels"] if each["type"] != "row"]
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def texts(svg: str) -> list[str]:
    found = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314 - made here
    return [each.text or "" for each in found]


def series(name: str, *values: float | None, **labels: str) -> Series:
    return Series(name, labels, values)


RUN = Samples(
    5,
    1000,
    (
        series("up", 1, 1, 0, job="a", node="n1"),
        series("up", 2, None, None, job="b"),
        series("hits_total", 0, 10, 30, job="a", way="in"),
        series("hits_total", 0, 0, 5, job="b", way="in"),
        series("hits_total", None, None, 7, job="b", way="out"),
        series("t_bucket", 0, 0, 50, le="0.1"),
        series("t_bucket", 0, 0, 100, le="0.5"),
        series("t_bucket", 0, 0, 100, le="+Inf"),
    ),
)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_is_shown_with_its_question_its_queries_and_figures(
    panel: dict[str, object],
) -> None:
    page = (REPOSITORY / dashboard.PATH).read_text()
    section = page.partition(f"### {panel['title']}\n")[2].partition("###")[0]
    assert panel["description"]
    assert str(panel["description"]) in section
    (shown,) = [
        each for row in dashboard.rows().values() for each in row if each.title == panel["title"]
    ]
    assert [query for query, _ in shown.targets if query not in section] == []
    run = read(dashboard.RUN)
    answered = [
        number
        for number in range(run.count)
        for query, _ in shown.targets
        if ask(query, run, number, {"node": ".*"})
    ]
    assert answered != []


def test_every_metric_of_a_query_is_one_of_the_code() -> None:
    known = {
        f"{each.name}{suffix}"
        for make in metrics.PROCESSES.values()
        for each in metrics.shown(make())
        for suffix in SUFFIXES[each.kind]
    }
    asked = set(re.findall(r"accelbind_\w+", " ".join(dashboard.queries())))
    assert len(asked) > 10
    assert asked - known == set()
    assert {each.name for each in read(dashboard.RUN).series} == asked


@pytest.mark.parametrize("row", list(dashboard.rows()))
def test_the_picture_of_a_row_names_its_panels_where_the_dashboard_has_them(row: str) -> None:
    panels = dashboard.rows()[row]
    svg = (REPOSITORY / "docs" / dashboard.picture_of(row)).read_text()
    assert {panel.title for panel in panels} <= set(texts(svg))
    root = ET.fromstring(svg)  # noqa: S314 - a file of ours
    boxes = [
        each
        for each in root.iter("{http://www.w3.org/2000/svg}rect")
        if each.get("class") == "plain"
    ]
    assert len(boxes) == len(panels)


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    odd = Samples(5, 7, (series("m", None, 1.5, 1.5, 2, reason='a "b" \\ {c}'), *RUN.series))
    (tmp_path / "run.txt").write_text(text_of(odd))
    again = read(tmp_path / "run.txt")
    assert sorted(map(str, map(_plain, again.series))) == sorted(map(str, map(_plain, odd.series)))
    assert (again.every, again.begun, again.count) == (5, 7, 4)
    (tmp_path / "run.txt").write_text("every 5 from 7\nnothing of the kind\n")
    with pytest.raises(ValueError, match="is no series"):
        read(tmp_path / "run.txt")


def _plain(one: Series) -> tuple[object, ...]:
    values = [None if value is None else float(value) for value in one.values]
    return one.name, sorted(one.labels.items()), values


@pytest.mark.parametrize(
    ("query", "at", "values"),
    [
        ('up{job="a"}', 2, [0]),
        ("sum(up)", 0, [3]),
        ("max by (job) (up)", 0, [1, 2]),
        ("min(up)", 2, [0]),
        ('up{node=~"n.*"}', 0, [1]),
        ('up{job!="a"}', 0, [2]),
        ("sum by (way) (rate(hits_total[$__rate_interval]))", 2, [3.5]),
        ("increase(hits_total{job='a'}[$__rate_interval])".replace("'", '"'), 2, [30]),
        ("sum(hits_total) - time()", 1, [10 - 1005]),
        ("histogram_quantile(0.5, sum by (le) (rate(t_bucket[$__rate_interval])))", 2, [0.1]),
        ("histogram_quantile(0.75, sum by (le) (rate(t_bucket[$__rate_interval])))", 2, [0.3]),
        ("histogram_quantile(0.5, sum by (le) (rate(t_bucket[$__rate_interval])))", 1, []),
        ('up{node=~"$node"}', 0, [1]),
        ("nothing", 0, []),
    ],
)
def test_queries_are_answered_as_prometheus_does(query: str, at: int, values: list[float]) -> None:
    assert sorted(ask(query, RUN, at, {"node": "n1"}).values()) == pytest.approx(values)


@pytest.mark.parametrize("query", ["sum(up", "up)", "up / 2", "topk(2, up)", "up{job}", "avg(up)"])
def test_what_is_beyond_it_is_an_error_and_no_wrong_answer(query: str) -> None:
    with pytest.raises(BadQuery):
        ask(query, RUN, 0)


def test_a_series_that_comes_late_or_goes_early_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    none: dict[str, str] = {}
    shown = iter([[("a", none, 1.0)], [("a", none, 2.0), ("b", none, 5.0)], [("b", none, 6.0)]])
    monkeypatch.setattr("docs_build.recording._scraped", lambda _: next(shown))
    recorder = Recorder(frozenset({"a", "b"}))
    for _ in range(3):
        recorder.scrape({("job", "n1"): 1})
    found = {each.name: each.values for each in recorder.samples(0).series}
    assert found == {"a": (1, 2, None), "b": (None, 5, 6)}
