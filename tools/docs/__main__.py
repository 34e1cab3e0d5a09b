"""`make docs`: generate pages and lists from code, definitions and chart."""

from collections.abc import Callable
from typing import Final

from services.process.files import replace_file
from tools.docs import chart, commands, crds, device_types, flags, reference
from tools.docs.texts import REPOSITORY

PAGES: Final[dict[str, Callable[[], str]]] = {
    reference.PATH: reference.page,
    chart.PATH: chart.page,
    crds.PATH: crds.page,
    device_types.PATH: device_types.page,
    device_types.FIELDS_PATH: device_types.fields,
    flags.PATH: flags.page,
    **commands.pages(),
}
"""Path in the repository → its generator."""


def main() -> None:
    for path, page in PAGES.items():
        file, text = REPOSITORY / path, page()
        file.parent.mkdir(exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            replace_file(file, text.encode(), mode=0o644)
            print(f"· {path}")


if __name__ == "__main__":
    main()
