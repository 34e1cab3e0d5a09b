"""The figures of `benchmarks.serving` where people would rather look: a file of them, and a plot.

`docs/pictures/admission-cost.json` keeps what was read last, with the machine and the day, and the
plot beside it is drawn from that: so whoever wants to draw it otherwise needn't measure again.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.serving import Cost
from docs_build.charts import Chart, Place, Series, draw
from docs_build.svg import Canvas
from services.atomic import replace_file

DATA: Final = Path(__file__).parents[1] / "docs" / "pictures" / "admission-cost.json"
"""Where `make bench` puts the figures; the plot has the same name with `.svg`."""

_WIDE: Final = 900.0
_HIGH: Final = 660.0
_FROM_SERVER: Final = "recorded"


@dataclass(frozen=True, slots=True)
class Run:
    """What was read in one go.

    Args:
        machine: Processor, cores, Python.
        day: As ISO has it.
        load: Of the machine, before it began.
        costs: The figures.
    """

    machine: str
    day: str
    load: float
    costs: tuple[Cost, ...]


def write(data: Path, costs: Sequence[Cost], *, machine: str, load: float) -> Path:
    """Keeps figures, and draws them.

    Args:
        data: The JSON file; the plot is beside it.
        costs: What was read.
        machine: Processor, cores, Python.
        load: Of the machine, before it began.

    Returns:
        Where the plot is.
    """
    day = time.strftime("%Y-%m-%d", time.gmtime())
    run = Run(machine, day, round(load, 1), tuple(costs))
    replace_file(data, f"{json.dumps(asdict(run), indent=1)}\n".encode(), mode=0o644)
    target = data.with_suffix(".svg")
    replace_file(target, plot(read(data)).encode(), mode=0o644)
    return target


def read(data: Path) -> Run:
    """The figures in a file."""
    found = json.loads(data.read_text(encoding="utf-8"))
    costs = tuple(Cost(**each) for each in found.pop("costs"))
    return Run(**found, costs=costs)


def plot(run: Run) -> str:
    """The plot: what an admission costs, over sizes of bodies and over numbers of mappings."""
    canvas = Canvas(_WIDE, _HIGH, "What an admission costs the webhook")
    half, high = _WIDE / 2 - 15, 290.0
    charts = (
        (_cost_by_size(run.costs), _ratio_by_size(run.costs)),
        (_cost_by_mappings(run.costs), _ratio_by_mappings(run.costs)),
    )
    for row, pair in enumerate(charts):
        for column, chart in enumerate(pair):
            place = Place(10 + column * (half + 10), 10 + row * (high + 15), half, high)
            draw(canvas, place, chart)
    said = f"CPU time of the server, medians, TLS included. {run.machine}; load {run.load:g}"
    canvas.text(18, _HIGH - 30, said, "faint s")
    canvas.text(18, _HIGH - 14, f"read on {run.day} by: python -m benchmarks serving", "faint s")
    return canvas.render()


def _by_size(costs: Sequence[Cost], *, recorded: bool = False) -> list[Cost]:
    fewest = min(each.mappings for each in costs)
    chosen = (
        each
        for each in costs
        if each.mappings == fewest and (_FROM_SERVER in each.name) == recorded
    )
    return sorted(chosen, key=lambda each: each.size)


def _cost_by_size(costs: Sequence[Cost]) -> Chart:
    found, recorded = _by_size(costs), _by_size(costs, recorded=True)
    series = [
        Series("review", _points(found, "review"), colour=0),
        Series("fixed bytes", _points(found, "fixed"), colour=1),
        Series("fixed bytes, no application", _points(found, "bare"), colour=2),
    ]
    if recorded:
        points = _points(recorded, "review")
        series.append(Series("review as recorded", points, joined=False, colour=3))
    return Chart("µs of CPU, by size of the body", tuple(series), "KB", _kilobytes)


def _ratio_by_size(costs: Sequence[Cost]) -> Chart:
    found, recorded = _by_size(costs), _by_size(costs, recorded=True)
    series = [
        Series("review : fixed bytes", _points(found, "ratio"), colour=0),
        Series("should be at most", _points(found, "limit"), joined=False, colour=4),
    ]
    if recorded:
        points = _points(recorded, "ratio")
        series.append(Series("as recorded", points, joined=False, colour=3))
    return Chart("ratio to fixed bytes, by size of the body", tuple(series), "KB", _kilobytes)


def _points(costs: Sequence[Cost], field: str) -> tuple[tuple[float, float], ...]:
    return tuple((float(each.size), float(getattr(each, field))) for each in costs)


def _cost_by_mappings(costs: Sequence[Cost]) -> Chart:
    series = [
        *_by_mappings(costs, "review", "review, "),
        *_by_mappings(costs, "fixed", "fixed bytes, ", colour=2),
    ]
    return _of_mappings("µs of CPU, by number of mappings", series)


def _ratio_by_mappings(costs: Sequence[Cost]) -> Chart:
    series = _by_mappings(costs, "ratio", "review : fixed bytes, ")
    return _of_mappings("ratio to fixed bytes, by number of mappings", series)


def _of_mappings(title: str, series: Sequence[Series]) -> Chart:
    ticks = sorted({x for each in series for x, _ in each.points})
    return Chart(
        title,
        tuple(series),
        "mappings",
        show_x=lambda x: f"{x:,.0f}".replace(",", "\u202f"),
        logarithmic=True,
        ticks=tuple(ticks),
    )


def _by_mappings(
    costs: Sequence[Cost], field: str, prefix: str, *, colour: int = 0
) -> list[Series]:
    """A curve a number of namespaces; the fewest mappings are the beginning of each."""
    smallest = min(each.size for each in _by_size(costs))
    few = next(each for each in _by_size(costs) if each.size == smallest)
    found: dict[int, list[Cost]] = {}
    for each in costs:
        if each.mappings > few.mappings:
            found.setdefault(each.namespaces, []).append(each)
    series = []
    for number, (namespaces, chosen) in enumerate(sorted(found.items())):
        ordered = [few, *sorted(chosen, key=lambda each: each.mappings)]
        points = tuple((float(each.mappings), float(getattr(each, field))) for each in ordered)
        name = f"{prefix}{namespaces} namespace{'s' if namespaces != 1 else ''}"
        series.append(Series(name, points, colour=colour + number))
    return series


def _kilobytes(size: float) -> str:
    return f"{size / 1000:g}"
