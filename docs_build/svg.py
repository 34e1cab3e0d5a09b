"""Pictures as SVG: shapes and texts in two coats, one for light and one for dark surroundings.

Texts stay texts. Nothing knows here which fonts a reader has, so widths are reckoned with those of
DejaVu, which are wider than what most readers see: what fits by them fits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final
from xml.sax.saxutils import escape, quoteattr

SANS: Final = 13.0
SMALL: Final = 11.5
LINE: Final = 17.0
"""From one line of text to the next."""

SERIES: Final = 8
"""How many colours there are for curves."""

_LIGHT: Final = {
    "bg": "fill:#ffffff",
    "h": "stroke:#ffffff",
    "ink": "fill:#1f2328",
    "faint": "fill:#57606a",
    "line": "stroke:#57606a",
    "thin": "stroke:#d0d7de",
    "head": "fill:#57606a",
    "plain": "fill:#f6f8fa;stroke:#8c959f",
    "ours": "fill:#ddf4ff;stroke:#0969da",
    "old": "fill:#fff1d6;stroke:#bf8700",
    "new": "fill:#dafbe1;stroke:#1a7f37",
    "group": "fill:#ffffff;stroke:#8c959f",
}
_DARK: Final = {
    "bg": "fill:#0d1117",
    "h": "stroke:#0d1117",
    "ink": "fill:#e6edf3",
    "faint": "fill:#9198a1",
    "line": "stroke:#9198a1",
    "thin": "stroke:#30363d",
    "head": "fill:#9198a1",
    "plain": "fill:#161b22;stroke:#6e7681",
    "ours": "fill:#0c2d4d;stroke:#4493f8",
    "old": "fill:#3a2a05;stroke:#d29922",
    "new": "fill:#0f2f1a;stroke:#3fb950",
    "group": "fill:#0d1117;stroke:#6e7681",
}
_CURVES: Final = (
    ("#0969da", "#4493f8"),
    ("#bc4c00", "#f0883e"),
    ("#1a7f37", "#3fb950"),
    ("#8250df", "#ab7df8"),
    ("#cf222e", "#f85149"),
    ("#9a6700", "#d29922"),
    ("#0f7b7b", "#39c5cf"),
    ("#bf3989", "#db61a2"),
)
_FIXED: Final = (
    "text{font-family:ui-sans-serif,'DejaVu Sans',Verdana,Arial,sans-serif;font-size:13px}"
    "text.h{paint-order:stroke;stroke-width:4px;stroke-linejoin:round}"
    "text.s{font-size:11.5px}text.b{font-weight:600}"
    "text.big{font-size:26px}"
    "text.m{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:11.5px}"
    ".line,.thin,.curve{fill:none}.line{stroke-width:1.4}.thin{stroke-width:1}"
    ".curve{stroke-width:2;stroke-linejoin:round}.group{stroke-dasharray:5 4}"
)
_NARROW: Final = frozenset("iljI.,:;'|!()[]{}tfr/\\- ")
_WIDE: Final = frozenset("mwMW@%—→←↔≥≤")


def width(text: str, *, size: float = SANS, mono: bool = False, bold: bool = False) -> float:
    """How wide a text may become, in pixels, with fonts that are on the wide side."""
    if mono:
        return len(text) * 0.61 * size
    units = fsum(
        0.37 if each in _NARROW else 0.95 if each in _WIDE else 0.72 if each.isupper() else 0.61
        for each in text
    )
    return units * size * (1.08 if bold else 1.0)


def fitting(text: str, wide: float, *, size: float = SANS) -> str:
    """A text that isn't wider than so many pixels: its beginning, if need be."""
    if width(text, size=size) <= wide:
        return text
    while text and width(f"{text}…", size=size) > wide:
        text = text[:-1]
    return f"{text.rstrip()}…"


@dataclass(slots=True)
class Canvas:
    """A picture while it is drawn.

    Args:
        width: In pixels.
        height: In pixels.
        title: What it shows, for those who don't see it.
    """

    width: float
    height: float
    title: str
    _parts: list[str] = field(default_factory=list)

    def rect(
        self, x: float, y: float, wide: float, high: float, kind: str, *, radius: float = 6
    ) -> None:
        """A box of a kind: `plain`, `ours`, `old`, `new`, `group`."""
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}"'
            f' rx="{radius:g}"/>'
        )

    def text(
        self, x: float, y: float, words: str, kind: str = "ink", *, anchor: str = "start"
    ) -> None:
        """A line of text, whose base line is at `y`.

        Args:
            x: Where it begins, ends or has its middle.
            y: Its base line.
            words: What it says.
            kind: Classes: `ink` or `faint`, `b` for bold, `s` for small, `m` for code, `h` to
                keep lines behind it away.
            anchor: `start`, `middle` or `end`.

        Raises:
            ValueError: It would be cut off at an edge.
        """
        mono, bold = "m" in kind.split(), "b" in kind.split()
        size = SMALL if mono or "s" in kind.split() else SANS
        wide = width(words, size=size, mono=mono, bold=bold)
        left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        if left < -0.5 or left + wide > self.width + 0.5 or not 0 < y < self.height:
            raise ValueError(f"{words!r} would be cut off at {x:g}, {y:g}: {wide:.0f} px wide")
        where = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}"{where}>{escape(words)}</text>'
        )

    def path(self, points: Sequence[tuple[float, float]], kind: str = "line") -> None:
        """A line through points."""
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline class="{kind}" points="{where}"/>')

    def arrow(self, points: Sequence[tuple[float, float]], *, dashed: bool = False) -> None:
        """A line with a head at its end."""
        (x1, y1), (x2, y2) = points[-2:]
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        back = (x2 - 7 * dx, y2 - 7 * dy)
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*points[:-1], back))
        style = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<polyline class="line"{style} points="{where}"/>')
        sides = ((x2, y2), *((back[0] + s * 4 * dy, back[1] - s * 4 * dx) for s in (1, -1)))
        head = " ".join(f"{x:.1f},{y:.1f}" for x, y in sides)
        self._parts.append(f'<polygon class="head" points="{head}"/>')

    def curve(self, number: int, points: Iterable[tuple[float, float]]) -> None:
        """A curve in one of the colours."""
        self.path(list(points), f"curve c{number % SERIES}")

    def dot(self, number: int, x: float, y: float, *, radius: float = 3) -> None:
        """A point of a curve."""
        kind = f"d{number % SERIES}"
        self._parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>')

    def render(self) -> str:
        """The whole picture."""
        size = f'width="{self.width:g}" height="{self.height:g}"'
        box = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        said = f'role="img" aria-label={quoteattr(self.title)}'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} {said}>',
                f"<title>{escape(self.title)}</title>",
                f"<style>{_style()}</style>",
                f'<rect class="bg" {size}/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def _style() -> str:
    dark = _coat(_DARK, 1)
    return f"{_FIXED}{_coat(_LIGHT, 0)}@media (prefers-color-scheme:dark){{{dark}}}"


def _coat(colours: dict[str, str], which: int) -> str:
    curves = "".join(
        f".c{number}{{stroke:{pair[which]}}}.d{number}{{fill:{pair[which]}}}"
        for number, pair in enumerate(_CURVES)
    )
    return "".join(f".{name}{{{style}}}" for name, style in colours.items()) + curves
