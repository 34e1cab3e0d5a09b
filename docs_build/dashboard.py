"""`docs/dashboards.md`: the dashboard's panels, what they answer, and a run as they show it."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from docs_build import charts, samples
from docs_build.promql import Key, ask
from docs_build.samples import Samples
from docs_build.svg import Canvas
from docs_build.texts import cell

REPOSITORY: Final = Path(__file__).parents[1]
BOARD: Final = REPOSITORY / "manifests" / "components" / "monitoring" / "dashboard.json"
RUN: Final = REPOSITORY / "docs" / "pictures" / "dashboard-run.txt"
"""What was scraped in a run, by `docs_build.recording`."""
PATH: Final = "docs/dashboards.md"

_COLUMN: Final = 40.0
_UNIT: Final = 37.0
_EDGE: Final = 10.0
_VARIABLES: Final = {"node": ".*"}
_ROOMY: Final = 8
"""Columns from which on a panel has room for long names."""
_CURVES: Final = 6
"""How many a panel shows; more would only cover each other."""

_HEAD: Final = """\
# The dashboard

The panels of `manifests/components/monitoring/dashboard.json`, which
`manifests/overlays/monitoring` puts where Grafana's sidecar finds it. The pictures aren't
Grafana's: `make docs` draws them from the dashboard's own queries and from what the real
processes showed in a run of {minutes} minutes, scraped every {every:g} s
(`docs/pictures/dashboard-run.txt`; `python -m docs_build.recording` makes another): the demo's
two nodes with synthetic cards, pods that come and go, regions that somebody else programmes
meanwhile, and a card whose firmware crashes. `$node` is the dashboard's choice of nodes, here
all of them. The metrics are those of the [reference](reference.md#metrics).
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard.

    Args:
        title: As people see it.
        question: What it answers.
        kind: `timeseries`, `stat` or `table`.
        unit: As Grafana calls it.
        targets: Its queries, each with how its series are called.
        grid: Column, row, width and height, as Grafana counts them.
    """

    title: str
    question: str
    kind: str
    unit: str
    targets: tuple[tuple[str, str], ...]
    grid: tuple[int, int, int, int]


def rows() -> dict[str, list[Panel]]:
    """The panels of each row of the dashboard, by its title."""
    found: dict[str, list[Panel]] = {}
    panels: list[Panel] = []
    for each in json.loads(BOARD.read_text(encoding="utf-8"))["panels"]:
        if each["type"] == "row":
            panels = found[each["title"]] = []
        else:
            panels.append(_panel(each))
    return found


def _panel(given: dict[str, Any]) -> Panel:
    place = given["gridPos"]
    return Panel(
        title=given["title"],
        question=given["description"],
        kind=given["type"],
        unit=given["fieldConfig"]["defaults"]["unit"],
        targets=tuple((each["expr"], each["legendFormat"]) for each in given["targets"]),
        grid=(place["x"], place["y"], place["w"], place["h"]),
    )


def queries() -> Iterator[str]:
    """All queries of all panels."""
    for panels in rows().values():
        for panel in panels:
            yield from (query for query, _ in panel.targets)


def picture_of(row: str) -> str:
    """Where the picture of a row is, below `docs`."""
    return f"pictures/dashboard-{row.lower()}.svg"


def page() -> str:
    """The whole page."""
    run = samples.read(RUN)
    parts = [_HEAD.format(minutes=round(run.count * run.every / 60), every=run.every)]
    for row, panels in rows().items():
        parts.append(f"## {row}\n\n![The panels of the row {row}]({picture_of(row)})\n")
        for panel in panels:
            asked = "\n".join(query for query, _ in panel.targets)
            parts.append(
                f"### {cell(panel.title)}\n\n{panel.question}\n\n```promql\n{asked}\n```\n"
            )
    return "\n".join(parts)


def pictures() -> dict[str, Callable[[], str]]:
    """Path in the repository → what draws the row there."""
    return {f"docs/{picture_of(row)}": _drawing(row) for row in rows()}


def _drawing(row: str) -> Callable[[], str]:
    return lambda: draw(row, rows()[row], samples.read(RUN))


def draw(row: str, panels: list[Panel], run: Samples) -> str:
    """A row of the dashboard, its panels where Grafana has them.

    Args:
        row: Its title.
        panels: Its panels.
        run: What to show in them.
    """
    top = min(panel.grid[1] for panel in panels)
    high = max(panel.grid[1] + panel.grid[3] for panel in panels) - top
    canvas = Canvas(
        24 * _COLUMN + 2 * _EDGE, high * _UNIT + 2 * _EDGE, f"The panels of the row {row}"
    )
    for panel in panels:
        x, y, wide, tall = panel.grid
        place = charts.Place(
            _EDGE + x * _COLUMN + 4,
            _EDGE + (y - top) * _UNIT + 4,
            wide * _COLUMN - 8,
            tall * _UNIT - 8,
        )
        canvas.rect(place.x, place.y, place.wide, place.high, "plain", radius=4)
        {"stat": _stat, "table": _table}.get(panel.kind, _curves)(canvas, place, panel, run)
    return canvas.render()


def _curves(canvas: Canvas, place: charts.Place, panel: Panel, run: Samples) -> None:
    found: dict[str, list[charts.Point]] = {}
    longest = 22 if panel.grid[2] >= _ROOMY else 9
    for number in range(run.count):
        for query, legend in panel.targets:
            for key, value in ask(query, run, number, _VARIABLES).items():
                found.setdefault(_named(legend, key, longest), []).append(
                    (number * run.every, value)
                )
    shown = sorted(found.items())[:_CURVES]
    series = tuple(
        charts.Series(name, tuple(points), marked=False, colour=number)
        for number, (name, points) in enumerate(shown)
    )
    chart = charts.Chart(
        panel.title,
        series,
        show_x=lambda seconds: f"{seconds / 60:g} min",
        show_y=lambda value: _shown(value, panel.unit),
        ticks=tuple(60.0 * minute for minute in range(round(run.count * run.every / 60) + 1)),
    )
    charts.draw(canvas, place, chart)


def _stat(canvas: Canvas, place: charts.Place, panel: Panel, run: Samples) -> None:
    ((query, _),) = panel.targets
    (value,) = ask(query, run, run.count - 1, _VARIABLES).values()
    canvas.text(place.x + 8, place.y + 16, panel.title, "ink b")
    middle = place.x + place.wide / 2
    text = _shown(value, panel.unit)
    canvas.text(middle, place.y + place.high / 2 + 10, text, "ink b big", anchor="middle")


def _table(canvas: Canvas, place: charts.Place, panel: Panel, run: Samples) -> None:
    ((query, _),) = panel.targets
    found = [dict(key) for key in ask(query, run, run.count - 1, _VARIABLES)]
    columns = [name for name in ("node", "device", "reason") if any(name in one for one in found)]
    canvas.text(place.x + 8, place.y + 16, panel.title, "ink b")
    step = (place.wide - 16) / max(len(columns), 1)
    for number, column in enumerate(columns):
        x = place.x + 8 + number * step
        canvas.text(x, place.y + 44, column, "faint s b")
        for row, labels in enumerate(found):
            canvas.text(x, place.y + 66 + row * 20, labels.get(column, ""), "ink s")


def _named(legend: str, key: Key, longest: int) -> str:
    """What a series is called: long words are cut in their middle."""
    labels = dict(key)
    words = re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)
    return " ".join(_short(word, longest) for word in words.split())


def _short(word: str, longest: int) -> str:
    name = word.rpartition("/")[2]
    return name if len(name) <= longest else f"{name[: longest - 6]}…{name[-5:]}"


def _shown(value: float, unit: str) -> str:
    """A value in a unit of Grafana's.

    Raises:
        KeyError: A unit that has no words here.
    """
    if unit == "s":
        return _seconds(value)
    ending = {"short": "", "reqps": "/s", "celsius": " °C", "watt": " W"}[unit]
    return f"{value:.4g}{ending}"


def _seconds(value: float) -> str:
    if abs(value) >= timedelta(days=2).total_seconds():
        return f"{value / 86400:.0f} days"
    if value and abs(value) < 0.001:
        return f"{value * 1e6:.4g} µs"
    return f"{value * 1e3:.4g} ms" if value and abs(value) < 1 else f"{value:.4g} s"
