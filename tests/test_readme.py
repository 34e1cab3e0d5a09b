"""What README and CONTRIBUTING tell people to type is what works."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPOSITORY, accelbind_command, clean_environment

NOT_HERE = ("make demo", "make test")
"""Run by test_demo.py, and by whoever runs this."""


def blocks(file: str, language: str) -> list[str]:
    text = (REPOSITORY / file).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(file: str, language: str) -> list[str]:
    lines = "\n".join(blocks(file, language)).splitlines()
    return [line.removeprefix("$ ") for line in lines if line and not line.startswith("#")]


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


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder in which the examples are at hand, and an `accelbind` for the path."""
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "accelbind"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m accelbind "$@"\n')
    script.chmod(0o755)
    return tmp_path


def test_every_command_of_the_readme_works(home: Path) -> None:
    typed = [line for line in commands("README.md", "sh") if not line.startswith(NOT_HERE)]
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = clean_environment() | {"PATH": path, "PYTHONPATH": str(REPOSITORY)}
    for line in typed:
        done = subprocess.run(
            ["/bin/sh", "-ec", line],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), line
        assert done.stdout, line
    assert len(typed) >= 5


def test_the_processes_of_the_readme_take_the_flags_shown() -> None:
    for line in commands("README.md", "console"):
        _, command, *rest = shlex.split(line.rpartition(" -- ")[2])  # after `kubectl exec … --`
        flags = {word for word in rest if word.startswith("--")}
        assert flags - shown_flags(command) == set(), line


@pytest.mark.parametrize("command", ["webhook", "plugin", "certs run"])
def test_the_tables_of_the_readme_name_flags_that_exist(command: str) -> None:
    text = (REPOSITORY / "README.md").read_text()
    table = text.partition(f"| `accelbind {command}` |")[2].partition("\n\n")[0]
    flags = set(re.findall(r"--[a-z][a-z-]+", table))
    assert flags
    assert flags - shown_flags(command) == set()


def test_the_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {
        word
        for file in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")
        for word in re.findall(r"\bmake ([a-z0-9]+)", (REPOSITORY / file).read_text())
    }
    assert {"demo", "test", "lint", "bench", "soak"} <= targets
    assert named - targets == set()


def test_links_between_the_documents_lead_somewhere() -> None:
    dead = [
        f"{file.name}: {target}"
        for file in REPOSITORY.glob("*.md")
        for target in re.findall(r"\]\(([^)#:]+)\)", file.read_text())
        if not (REPOSITORY / target).exists()
    ]
    assert dead == []


def test_the_rooms_of_the_house_exist() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    rooms = re.findall(r"^\| `([a-z/]+)/` \|", text, re.MULTILINE)
    assert len(rooms) >= 10
    assert [room for room in rooms if not (REPOSITORY / room).is_dir()] == []
