"""Pictures of what holds from when to when: `.timeline`.

title: what the picture shows
moment: what happens | and how long after      one a column edge, in order
row: CA bundle in the configurations           what the bars below it are about
bar old 0 3: old CA                            kind, from which moment, to which
"""

from pathlib import Path
from typing import Final

from docs_build.sources import BadSource, Line, lines
from docs_build.svg import SMALL, Canvas, width

_EDGE: Final = 20.0
_BAR: Final = 24.0
_ROW: Final = 15.0


def draw(path: Path) -> str:
    """The picture that a source describes.

    Raises:
        BadSource: A line can't be understood, or a text doesn't fit its bar.
        ValueError: A text would be cut off.
    """
    title, *rest = lines(path)
    moments = [line for line in rest if line.head[0] == "moment"]
    bars = [line for line in rest if line.head[0] != "moment"]
    step = max(width(text, size=SMALL) for each in moments for text in each.texts) + 18
    top = _EDGE + _ROW * max(len(each.texts) for each in moments) + 8
    heights = [_BAR + 8 if line.head[0] == "bar" else _ROW + 14 for line in bars]
    wide = round(2 * _EDGE + step * len(moments))
    canvas = Canvas(wide, round(top + sum(heights) + _EDGE), title.texts[0])
    edges = [_EDGE + step * (number + 0.5) for number in range(len(moments))]
    for x, moment in zip(edges, moments, strict=True):
        canvas.path([(x, top), (x, canvas.height - _EDGE)], "thin")
        for number, text in enumerate(moment.texts):
            style = "faint s" if number else "ink s b"
            canvas.text(x, _EDGE + 8 + number * _ROW, text, style, anchor="middle")
    y = top
    for line, high in zip(bars, heights, strict=True):
        _line(canvas, line, edges, y)
        y += high
    return canvas.render()


def _line(canvas: Canvas, line: Line, edges: list[float], y: float) -> None:
    match line.head[0]:
        case "row":
            canvas.text(_EDGE, y + 21, line.texts[0], "ink s b h")
        case "bar":
            begin = _edge(line, 2, edges, canvas)
            end = _edge(line, 3, edges, canvas)
            if width(line.texts[0], size=SMALL) > end - begin - 10:
                raise BadSource(f"{line.where}: {line.texts[0]!r} doesn't fit into its bar")
            canvas.rect(begin, y + 2, end - begin, _BAR, line.head[1], radius=4)
            canvas.text((begin + end) / 2, y + 18, line.texts[0], "ink s", anchor="middle")
        case word:
            raise BadSource(f"{line.where}: {word!r} is no part of a timeline")


def _edge(line: Line, index: int, edges: list[float], canvas: Canvas) -> float:
    """Where a moment is; `-` is before the first, `+` after the last."""
    if line.head[index] == "-":
        return _EDGE
    if line.head[index] == "+":
        return canvas.width - _EDGE
    return edges[int(line.number(index))]
