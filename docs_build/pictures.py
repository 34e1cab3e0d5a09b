"""The pictures whose sources are beside them in `docs/pictures`: texts, or figures of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import plot
from docs_build import maps, sequences, timelines

FOLDER: Final = Path(__file__).parents[1] / "docs" / "pictures"

KINDS: Final[dict[str, Callable[[Path], str]]] = {
    ".map": maps.draw,
    ".sequence": sequences.draw,
    ".timeline": timelines.draw,
}
"""By how a source's name ends."""


def pages() -> dict[str, Callable[[], str]]:
    """Path in the repository → what draws the picture there."""
    sources = sorted(path for path in FOLDER.iterdir() if path.suffix in KINDS)
    drawn = {f"docs/pictures/{path.stem}.svg": _drawing(path) for path in sources}
    figures = plot.DATA.with_suffix(".svg").name
    return {**drawn, f"docs/pictures/{figures}": lambda: plot.plot(plot.read(plot.DATA))}


def _drawing(path: Path) -> Callable[[], str]:
    return lambda: KINDS[path.suffix](path)
