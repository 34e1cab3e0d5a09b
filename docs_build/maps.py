"""Pictures of boxes and arrows: `.map`.

    size 900 400: what the picture shows
    group 10 10 300 200: a node                     a dashed frame: x y width height
    box pod ours 20 40 200 60: Pod | `limits: 1`    name, kind, place: lines, code in backticks
    arrow pod.right api.left: create                from side to side; `side@0.3` is a part of it
    arrow a.bottom 40,300 b.left dashed: words      by way of points
    text 20 390: a remark

A label stands at the middle of the arrow's longest part: above it, or to its right.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from docs_build.sources import BadSource, Line, lines
from docs_build.svg import LINE, SANS, SMALL, Canvas, width

Point = tuple[float, float]

_SIDES: Final = {
    "left": (0.0, None),
    "right": (1.0, None),
    "top": (None, 0.0),
    "bottom": (None, 1.0),
}


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    wide: float
    high: float

    def at(self, side: str, share: float) -> Point:
        across, down = _SIDES[side]
        return (
            self.x + self.wide * (share if across is None else across),
            self.y + self.high * (share if down is None else down),
        )


def draw(path: Path) -> str:
    """The picture that a source describes.

    Raises:
        BadSource: A line can't be understood, or a text doesn't fit its box.
        ValueError: A text would be cut off.
    """
    first, *rest = lines(path)
    canvas = Canvas(first.number(1), first.number(2), first.texts[0])
    boxes: dict[str, _Box] = {}
    for line in rest:
        match line.head[0]:
            case "group":
                place = _Box(*(line.number(index) for index in range(1, 5)))
                canvas.rect(place.x, place.y, place.wide, place.high, "group")
                canvas.text(place.x + 10, place.y + 18, line.texts[0], "faint s b")
            case "box":
                name, kind = line.head[1:3]
                boxes[name] = _Box(*(line.number(index) for index in range(3, 7)))
                _box(canvas, line, boxes[name], kind)
            case "arrow":
                _arrow(canvas, line, boxes)
            case "text":
                canvas.text(line.number(1), line.number(2), line.texts[0], "faint s")
            case word:
                raise BadSource(f"{line.where}: {word!r} is nothing that can be drawn")
    return canvas.render()


def _box(canvas: Canvas, line: Line, box: _Box, kind: str) -> None:
    canvas.rect(box.x, box.y, box.wide, box.high, kind)
    begin = box.y + box.high / 2 - (len(line.texts) - 1) * LINE / 2 + 4.5
    for number, text in enumerate(line.texts):
        mono = text.startswith("`")
        words = text.strip("`")
        style = "ink m" if mono else "ink b" if number == 0 else "ink s"
        size = SANS if style == "ink b" else SMALL
        if width(words, size=size, mono=mono, bold=number == 0) > box.wide - 8:
            raise BadSource(f"{line.where}: {words!r} doesn't fit into {box.wide:g} px")
        middle = box.x + box.wide / 2
        canvas.text(middle, begin + number * LINE, words, style, anchor="middle")


def _arrow(canvas: Canvas, line: Line, boxes: dict[str, _Box]) -> None:
    words = [word for word in line.head[1:] if word not in {"dashed", "both", "below"}]
    points = [_point(line, word, boxes) for word in words]
    dashed = "dashed" in line.head
    canvas.arrow(points, dashed=dashed)
    if "both" in line.head:
        canvas.arrow(points[::-1], dashed=dashed)
    if line.texts:
        _label(canvas, points, line.texts, below="below" in line.head)


def _point(line: Line, word: str, boxes: dict[str, _Box]) -> Point:
    if "," in word:
        x, y = word.split(",")
        return float(x), float(y)
    name, _, where = word.partition(".")
    side, _, share = where.partition("@")
    if name not in boxes or side not in _SIDES:
        raise BadSource(f"{line.where}: {word!r} is no side of a box")
    return boxes[name].at(side, float(share or 0.5))


def _label(canvas: Canvas, points: list[Point], texts: tuple[str, ...], *, below: bool) -> None:
    (x1, y1), (x2, y2) = max(pairwise(points), key=lambda two: _length(*two))
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    if abs(x2 - x1) >= abs(y2 - y1):
        top = y + 15 if below else y - 6 - (len(texts) - 1) * 14
        for number, text in enumerate(texts):
            canvas.text(x, top + number * 14, text, "faint s h", anchor="middle")
        return
    top = y + 4 - (len(texts) - 1) * 7
    for number, text in enumerate(texts):
        canvas.text(x + 8, top + number * 14, text, "faint s h")


def _length(one: Point, other: Point) -> float:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])
