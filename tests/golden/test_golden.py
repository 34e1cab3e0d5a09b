"""The product behaves as the golden files say; `make golden` rewrites them."""

from collections.abc import Iterator
from itertools import zip_longest

import pytest

from tests.golden.files import FILES, FOLDER, FROM_SHARED
from tests.support import require_shared

SHOWN = 5


def differences(name: str, now: Iterator[str]) -> list[str]:
    """The first lines that differ, as a diff shows them."""
    golden = (FOLDER / name).read_text().splitlines()
    lines = []
    for number, (before, after) in enumerate(zip_longest(golden, now), 1):
        if before != after:
            lines += [f"{name}:{number}", f"- {before}", f"+ {after}"]
    return lines[: 3 * SHOWN]


@pytest.mark.parametrize("name", FILES)
def test_it_is_as_the_golden_file_says(name: str) -> None:
    assert differences(name, FILES[name]()) == [], "make golden, if it is meant to change"


@pytest.mark.parametrize("name", FROM_SHARED)
def test_it_is_as_the_golden_file_of_shared_material_says(name: str) -> None:
    require_shared("hardware")
    require_shared("recorded")
    assert differences(name, FROM_SHARED[name]()) == [], "make golden, if it is meant to change"
