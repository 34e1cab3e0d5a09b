"""Generated pages are up to date and complete. tests/golden compares the names in the reference."""

import ast
import re

import pytest

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
