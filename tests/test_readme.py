"""What the documentation names exists. tests/docs checks its commands."""

import re

import pytest

from tests.support import REPOSITORY
from tools.ideas import exceptions

PACKAGES = ("accelbind", "certs", "plugin", "services", "simulator", "tools", "webhook")
NAMED = {
    "module": re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)`"),
    "file": re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|proto|yaml|md|json))`"),
    "folder": re.compile(r"^\| `([a-z_0-9]+)/` \|", re.MULTILINE),
}
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/decisions.md", "docs/developers.md")


def exists(kind: str, name: str) -> bool:
    path = REPOSITORY / (name.replace(".", "/") if kind == "module" else name)
    return path.is_dir() or path.with_suffix(".py").is_file() or path.is_file()


def test_the_readme_is_a_page_and_not_a_manual() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_modules_and_files_that_pages_for_developers_name_exist(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    found = {(kind, name) for kind, pattern in NAMED.items() for name in pattern.findall(text)}
    assert found
    assert [name for kind, name in found if not exists(kind, name)] == []


def test_the_architecture_names_every_package_and_the_way_of_a_pod() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    assert set(PACKAGES) <= set(NAMED["folder"].findall(text))
    subjects = {path.parent.name for path in REPOSITORY.glob("services/*/__init__.py")} | {"names"}
    assert set(re.findall(r"^\| `services\.(\w+)`", text, re.MULTILINE)) == subjects
    pod = re.search(r"^\| A pod \|(.*)$", text, re.MULTILINE)
    steps = NAMED["module"].findall(pod[1]) if pod else ["none"]
    assert steps[0].startswith("webhook.")
    assert len(steps) <= 8


def test_the_architecture_is_a_page_with_few_exceptions() -> None:
    assert len((REPOSITORY / "ARCHITECTURE.md").read_text().splitlines()) <= 70
    assert exceptions(REPOSITORY) <= 7


def test_the_targets_that_are_named_exist() -> None:
    files = (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"))
    named = {
        word
        for file in files
        for word in re.findall(r"(?:^|`)make ([a-z0-9-]+)", file.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "lint", "bench", "soak"} <= named
    makefile = (REPOSITORY / "Makefile").read_text()
    assert named - set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE)) == set()
