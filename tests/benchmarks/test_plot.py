"""The plot says what the figures say, whatever they are."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks import plot, serving
from benchmarks.plot import Run
from benchmarks.serving import Cost
from docs_build.charts import Chart, Place, Series, draw, rounded
from docs_build.svg import Canvas

SVG = "{http://www.w3.org/2000/svg}"
SMALL = Cost("small", 4600, 10, 1, 120, 170, 80, 1.4, 2.1, 1.5)
COSTS = (
    SMALL,
    replace(SMALL, name="annotations", size=57_000, review=260, ratio=1.38),
    replace(SMALL, name="small, recorded", size=4700, review=175),
    *(
        replace(SMALL, name="small, many", mappings=mappings, namespaces=namespaces, review=171)
        for mappings in (10_000, 100_000)
        for namespaces in (1, 1000)
    ),
)
RUN = Run("a machine, 2 cores", "2026-11-21", 0.5, COSTS)


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - ours


def curves(svg: str) -> list[list[tuple[float, float]]]:
    """The points of each curve, in pixels."""
    found = ET.fromstring(svg).iter(f"{SVG}polyline")  # noqa: S314 - made here
    return [
        [
            (float(x), float(y))
            for x, y in (pair.split(",") for pair in line.get("points", "").split())
        ]
        for line in found
        if line.get("class", "").startswith("curve")
    ]


def test_machine_day_and_command_stand_below_the_plot() -> None:
    said = " ".join(texts(plot.plot(RUN)))
    for word in ("a machine, 2 cores", "load 0.5", "2026-11-21", "python -m benchmarks serving"):
        assert word in said


def test_each_number_of_namespaces_has_a_curve_from_the_fewest_mappings_on() -> None:
    svg = plot.plot(RUN)
    assert {"review, 1 namespace", "review, 1000 namespaces", "10", "100\u202f000"} <= set(
        texts(svg)
    )
    found = curves(svg)
    assert sorted(map(len, found)) == [2, 2, 2, 2, 3, 3, 3, 3, 3, 3]
    for curve in found:
        assert [x for x, _ in curve] == sorted(x for x, _ in curve)


def test_what_costs_more_is_higher() -> None:
    review, fixed, bare = curves(plot.plot(RUN))[:3]
    assert review[0][1] < fixed[0][1] < bare[0][1]
    assert review[1][1] < review[0][1]


def test_figures_are_kept_with_the_plot_and_read_again(tmp_path: Path) -> None:
    target = plot.write(tmp_path / "cost.json", COSTS, machine="m", load=1.26)
    assert target == tmp_path / "cost.svg"
    kept = plot.read(tmp_path / "cost.json")
    assert (kept.machine, kept.load, kept.costs) == ("m", 1.3, COSTS)
    assert target.read_text() == plot.plot(kept)
    assert len(json.loads((tmp_path / "cost.json").read_text())["costs"]) == len(COSTS)


def test_few_figures_make_a_plot_too() -> None:
    svg = plot.plot(replace(RUN, costs=(SMALL,)))
    assert "µs of CPU, by size of the body" in texts(svg)


def test_the_command_line_says_where_the_plot_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows(take: object) -> list[tuple[str, ...]]:
        assert callable(take)
        take(SMALL)
        return [("small",) * len(serving.HEADINGS)]

    monkeypatch.setattr(serving, "rows", rows)
    bench._command_line(["serving", "--plot", str(tmp_path / "here.svg")])
    assert (tmp_path / "here.svg").exists()
    assert "here.svg" in capsys.readouterr().out.replace("\n", "")
    bench._command_line(["serving", "--no-plot"])
    assert "plot:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lowest", "highest", "ticks"),
    [
        (0, 1.4, [0, 0.5, 1, 1.5]),
        (0, 262, [0, 100, 200, 300]),
        (0, 0, [0, 0.25]),
        (57_000, 4_600_000, [0, 2_000_000, 4_000_000, 6_000_000]),
    ],
)
def test_ticks_are_round_and_embrace_what_is_shown(
    lowest: float, highest: float, ticks: list[float]
) -> None:
    assert rounded(lowest, highest) == pytest.approx(ticks)


def test_a_chart_without_figures_has_axes_all_the_same() -> None:
    canvas = Canvas(300, 200, "empty")
    draw(canvas, Place(0, 0, 300, 200), Chart("nothing yet", (Series("none", ()),)))
    assert "nothing yet" in texts(canvas.render())
