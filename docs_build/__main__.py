"""`make docs`: writes what is made from the code and from the pictures' sources.

`python -m docs_build --check` writes nothing, and names what isn't up to date.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from docs_build import dashboard, node_rule, pictures, reference
from services.atomic import replace_file

REPOSITORY: Final = Path(__file__).parents[1]

PAGES: Final[dict[str, Callable[[], str]]] = {
    reference.PATH: reference.page,
    dashboard.PATH: dashboard.page,
    node_rule.PATH: node_rule.page,
    **pictures.pages(),
    **dashboard.pictures(),
}
"""Path in the repository → what is to stand there."""


def outdated() -> list[str]:
    """The paths of what doesn't say what it should."""
    return [path for path, make in PAGES.items() if _text(REPOSITORY / path) != make()]


def main(arguments: Sequence[str] = ()) -> int:
    """Writes what has changed.

    Args:
        arguments: `--check` to only look.

    Returns:
        1 if something isn't up to date and was only looked at.
    """
    old = outdated()
    if "--check" in arguments:
        for path in old:
            print(f"{path} is not what the code says: make docs")
        return 1 if old else 0
    for path in old:
        replace_file(REPOSITORY / path, PAGES[path]().encode(), mode=0o644)
        print(f"· {path}")
    return 0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
