"""Generated pages are up to date and complete. tests/golden compares the names in the reference."""

import ast
import re

import pytest
import yaml

from services.devices.types.parsing import parse
from tests.services.devices.types.making import type_of
from tests.support import REPOSITORY
from tools.docs import codes
from tools.docs.__main__ import PAGES


@pytest.mark.parametrize("path", list(PAGES))
def test_generated_pages_are_up_to_date(path: str) -> None:
    assert (REPOSITORY / path).read_text() == PAGES[path](), "make docs"


def test_names_in_objects_of_others_are_documented() -> None:
    """Annotations and variables, as the code of the processes has them."""
    ours = re.compile(r"(accelbind\.dev/[a-z-]+|ACCELERATOR_[A-Z]+)")
    told = codes.names()
    found = {
        node.value
        for room in ("webhook", "plugin", "certs", "services")
        for path in (REPOSITORY / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and ours.fullmatch(node.value)
    }
    assert len(found) >= 4
    assert [name for name in found if name not in told] == []


# The guide to device types

GUIDE = (REPOSITORY / "docs" / "device-types.md").read_text()


def test_the_types_of_the_guide_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    assert [parse(yaml.safe_load(each)).name for each in blocks] == [
        "vector-engine",
        "hailo-chardev",
        "modem",
        "camera",
        "xdma-h2c",
        "t4-vfio",
        "fuse",
    ]


def test_the_matches_beside_those_of_other_plugins_are_valid() -> None:
    cells = re.findall(r"\| `(\[\{.*?\}\])`(?:, with `(.*?)`)? \|", GUIDE)
    assert len(cells) == 5
    for match, more in cells:
        spec = {"match": yaml.safe_load(match), **(yaml.safe_load(more) if more else {})}
        type_of(spec)
