"""The pictures whose sources are texts beside them, in `docs/pictures`."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

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
    return {f"docs/pictures/{path.stem}.svg": _drawing(path) for path in sources}


def _drawing(path: Path) -> Callable[[], str]:
    return lambda: KINDS[path.suffix](path)
