"""What the documents name is there; tests/docs runs what they have people type."""

import re
import subprocess

from tests.support import REPOSITORY, accelbind_command, clean_environment


def shown_flags(command: str) -> set[str]:
    done = subprocess.run(
        accelbind_command(*command.split(), "--help"),
        cwd=REPOSITORY,
        env=clean_environment() | {"TERM": "dumb", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r"--[a-z][a-z-]+", done.stdout))


def test_the_readme_is_a_page_and_not_a_manual() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 250


def test_the_targets_that_are_named_exist() -> None:
    targets = set(
        re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    )
    files = (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"))
    named = {
        word
        for file in files
        for word in re.findall(r"(?:^|`)make ([a-z0-9-]+)", file.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "lint", "bench", "soak"} <= targets
    assert named - targets == set()


def test_the_rooms_of_the_house_exist() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    rooms = re.findall(r"^\| `([a-z_/]+)/` \|", text, re.MULTILINE)
    assert len(rooms) >= 10
    assert [room for room in rooms if not (REPOSITORY / room).is_dir()] == []
