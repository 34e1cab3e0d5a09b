"""Pictures of who asks whom, in which order: `.sequence`.

title: what the picture shows
actor kubelet plain: kubelet          name, kind: words in its box
kubelet -> plugin: Allocate           asks
plugin --> kubelet: devices           answers
plugin: reads the checkpoint | …      does something itself
part: what comes now
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from docs_build.sources import BadSource, Line, lines
from docs_build.svg import SMALL, Canvas, width

_EDGE: Final = 20.0
_HEAD: Final = 34.0
_STEP: Final = 30.0
_ROW: Final = 15.0
_CLOSEST: Final = 110.0


@dataclass(frozen=True, slots=True)
class _Step:
    line: Line
    source: str
    target: str
    answers: bool = False

    @property
    def wide(self) -> float:
        return max(width(text, size=SMALL) for text in self.line.texts)


def draw(path: Path) -> str:
    """The picture that a source describes.

    Raises:
        BadSource: A line can't be understood.
        ValueError: A text would be cut off.
    """
    title, *rest = lines(path)
    actors = {line.head[1]: line for line in rest if line.head[0] == "actor"}
    steps = [_step(line, actors) for line in rest if line.head[0] != "actor"]
    places, right = _places(list(actors), steps, actors)
    high = _EDGE + _HEAD + 18 + sum(_high(step) for step in steps) + 12
    canvas = Canvas(round(right), round(high), title.texts[0])
    for name, x in places.items():
        canvas.path([(x, _EDGE + _HEAD), (x, high - 12)], "thin")
        wide = width(actors[name].texts[0], bold=True) + 24
        canvas.rect(x - wide / 2, _EDGE, wide, _HEAD, actors[name].head[2])
        canvas.text(x, _EDGE + 22, actors[name].texts[0], "ink b", anchor="middle")
    y = _EDGE + _HEAD + 18
    for step in steps:
        _draw(canvas, step, places, y)
        y += _high(step)
    return canvas.render()


def _step(line: Line, actors: dict[str, Line]) -> _Step:
    match line.head:
        case ("part",):
            return _Step(line, "", "")
        case (name,) if name in actors:
            return _Step(line, name, name)
        case (source, "->" | "-->" as arrow, target) if {source, target} <= set(actors):
            return _Step(line, source, target, answers=arrow == "-->")
    raise BadSource(f"{line.where}: {' '.join(line.head)!r} is no step between actors")


def _high(step: _Step) -> float:
    return _STEP + (len(step.line.texts) - 1) * _ROW + (8 if not step.source else 0)


def _places(
    names: list[str], steps: list[_Step], actors: dict[str, Line]
) -> tuple[dict[str, float], float]:
    """Where each actor's line is: so far apart that all words fit between; and the right edge."""
    half = {name: width(actors[name].texts[0], bold=True) / 2 + 12 for name in names}
    places = {names[0]: _EDGE + half[names[0]]}
    for left, name in pairwise(names):
        x = places[left] + max(_CLOSEST, half[left] + half[name] + 16)
        for step in steps:
            ends = {step.source, step.target}
            if step.source and step.source == step.target == left:
                x = max(x, places[left] + step.wide + 34)
            elif name in ends and len(ends) == 2:
                other = next(iter(ends - {name}))
                if other in places:
                    x = max(x, places[other] + step.wide + 26)
        places[name] = x
    last = names[-1]
    own = [step.wide + 30 for step in steps if step.source == step.target == last]
    parts = [_EDGE + step.wide * 1.1 for step in steps if not step.source]
    return places, max(places[last] + max([half[last], *own]), *parts, 0) + _EDGE


def _draw(canvas: Canvas, step: _Step, places: dict[str, float], y: float) -> None:
    texts = step.line.texts
    if not step.source:
        canvas.text(_EDGE, y + 16, texts[0], "ink s b h")
        canvas.path([(_EDGE, y + 23), (canvas.width - _EDGE, y + 23)], "thin")
        return
    begin, end = places[step.source], places[step.target]
    if step.source == step.target:
        canvas.rect(begin - 4, y + 2, 8, 6 + len(texts) * _ROW, "ours", radius=2)
        for number, text in enumerate(texts):
            canvas.text(begin + 12, y + 14 + number * _ROW, text, "faint s")
        return
    for number, text in enumerate(texts):
        canvas.text((begin + end) / 2, y + 10 + number * _ROW, text, "ink s h", anchor="middle")
    bottom = y + 16 + (len(texts) - 1) * _ROW
    canvas.arrow([(begin, bottom), (end, bottom)], dashed=step.answers)
