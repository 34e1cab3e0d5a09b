"""Charts: curves and points over axes whose ticks are round numbers."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from docs_build.svg import SMALL, Canvas, fitting, width

Point = tuple[float, float]
Format = Callable[[float], str]
Scale = Callable[[float], float]

_LEFT: Final = 52.0
_BOTTOM: Final = 42.0
_TOP: Final = 30.0
_RIGHT: Final = 28.0
_LEGEND: Final = 17.0


@dataclass(frozen=True, slots=True)
class Series:
    """What belongs together.

    Args:
        name: For the legend.
        points: In the order in which they are joined.
        joined: Whether by a curve; else they are points.
        marked: Whether each point of a curve is seen.
        colour: Its number.
    """

    name: str
    points: tuple[Point, ...]
    joined: bool = True
    marked: bool = True
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Args:
        title: What it shows.
        series: Its curves.
        across: What the axis to the right counts.
        show_x: How numbers of that axis are written.
        show_y: The same for the one that goes up.
        logarithmic: Whether the axis to the right is.
        ticks: Where that one has its ticks; round numbers if none are given.
    """

    title: str
    series: tuple[Series, ...]
    across: str = ""
    show_x: Format = "{:g}".format
    show_y: Format = "{:g}".format
    logarithmic: bool = False
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where on a canvas a chart is, legend and all."""

    x: float
    y: float
    wide: float
    high: float


def rounded(lowest: float, highest: float, count: int = 4) -> list[float]:
    """Round numbers, the first at or below the lowest and the last at or above the highest."""
    span = (highest - lowest) or abs(highest) or 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each * count >= span * 0.999)
    first, last = math.floor(lowest / step + 1e-9), math.ceil(highest / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def draw(canvas: Canvas, place: Place, chart: Chart) -> None:
    """Draws a chart.

    Args:
        canvas: Where to.
        place: Where on it.
        chart: What.

    Raises:
        ValueError: A text would be cut off.
    """
    legend = list(_legend(chart.series, place.wide - _LEFT - _RIGHT))
    rows = 1 + max((row for row, _, _ in legend), default=-1)
    inner = Place(
        place.x + _LEFT,
        place.y + _TOP,
        place.wide - _LEFT - _RIGHT,
        place.high - _TOP - _BOTTOM - rows * _LEGEND,
    )
    canvas.text(place.x + 8, place.y + 16, chart.title, "ink b")
    across, up = _axes(canvas, inner, chart)
    for each in chart.series:
        spots = [(across(x), up(y)) for x, y in each.points]
        if each.joined and len(spots) > 1:
            canvas.curve(each.colour, spots)
        if each.marked or not each.joined or len(spots) == 1:
            for spot in spots:
                canvas.dot(each.colour, *spot)
    base = inner.y + inner.high + _BOTTOM + 10
    for row, x, each in legend:
        name = fitting(each.name, inner.wide - x - 13, size=SMALL)
        y = base + row * _LEGEND
        canvas.dot(each.colour, inner.x + x + 4, y - 4, radius=4)
        canvas.text(inner.x + x + 13, y, name, "ink s")


def _axes(canvas: Canvas, inner: Place, chart: Chart) -> tuple[Scale, Scale]:
    xs = [x for each in chart.series for x, _ in each.points] or [0.0, 1.0]
    ys = [y for each in chart.series for _, y in each.points] or [0.0, 1.0]
    ticks = list(chart.ticks) or rounded(min(xs), max(xs), 5)
    levels = rounded(min(0.0, *ys), max(ys))
    across = _scale(
        (min(*ticks, *xs), max(*ticks, *xs)),
        (inner.x, inner.x + inner.wide),
        logarithmic=chart.logarithmic,
    )
    up = _scale((levels[0], levels[-1]), (inner.y + inner.high, inner.y))
    for level in levels:
        y = up(level)
        canvas.path([(inner.x, y), (inner.x + inner.wide, y)], "thin")
        canvas.text(inner.x - 6, y + 4, chart.show_y(level), "faint s", anchor="end")
    for tick in ticks:
        x = across(tick)
        canvas.path([(x, inner.y + inner.high), (x, inner.y + inner.high + 4)], "line")
        canvas.text(x, inner.y + inner.high + 17, chart.show_x(tick), "faint s", anchor="middle")
    if chart.across:
        middle = inner.x + inner.wide / 2
        canvas.text(middle, inner.y + inner.high + 32, chart.across, "faint s", anchor="middle")
    return across, up


def _scale(values: Point, pixels: Point, *, logarithmic: bool = False) -> Scale:
    def placed(value: float) -> float:
        return math.log10(max(value, 1e-9)) if logarithmic else value

    low, high = placed(values[0]), placed(values[1])
    span = (high - low) or 1.0
    return lambda value: pixels[0] + (placed(value) - low) / span * (pixels[1] - pixels[0])


def _legend(series: Sequence[Series], wide: float) -> Iterator[tuple[int, float, Series]]:
    """Row and place of each name; charts of one nameless curve have none."""
    row, x = 0, 0.0
    for each in series:
        if not each.name:
            continue
        needs = width(each.name, size=SMALL) + 26
        if x and x + needs > wide:
            row, x = row + 1, 0.0
        yield row, x, each
        x += needs
