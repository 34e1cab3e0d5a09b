"""The workflows: their steps are targets that tests run, with pinned actions."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
MATRIX = yaml.safe_load(WORKFLOWS[0].read_text())["jobs"]["check"]["strategy"]["matrix"]
"""Of CI."""
RUN_BY_TESTS = {
    "kind": "tests/tools/test_release.py",
    "publish": "tests/tools/test_release.py",
    "release-files": "tests/tools/test_release.py",
    "e2e": "tests/e2e/test_e2e.py",
}


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        yield from job.get("steps", ())


def test_there_are_both() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_nothing_names_a_host(workflow: Path) -> None:
    text = workflow.read_text()
    used = re.findall(r"uses: (.*)", text)
    pinned = r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/\w+\.yml"
    assert used
    assert [each for each in used if not re.fullmatch(pinned, each)] == []
    assert re.findall(r"://|\b[\w-]+\.(?:io|com|org|dev)\b", text) == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_steps_are_targets_of_make_that_tests_run(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert commands
    for command in commands:
        if ".ci/run" in command:
            assert command.endswith(".ci/run ${{ matrix.target }}")
        else:
            target = re.fullmatch(
                r'make ([a-z0-9-]+)(?: KUBECONFIG="\$HOME/\.kube/config")?', command
            )
            assert target, command
            if target[1] not in MATRIX["target"]:
                assert f'"{target[1]}"' in (REPOSITORY / RUN_BY_TESTS[target[1]]).read_text()


def test_the_targets_of_ci_are_those_of_its_script() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text()
    assert f"targets=({' '.join(MATRIX['target'])})" in script


def test_ci_tests_each_python_that_is_supported() -> None:
    tested = [*MATRIX["python"], *(each["python"] for each in MATRIX["include"])]
    assert {each["target"] for each in MATRIX["include"]} == {"test"}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    named = "Programming Language :: Python :: 3."
    assert [f"{named}{each[2:]}" for each in tested] == [
        each for each in project["classifiers"] if each.startswith(named)
    ]
    assert project["requires-python"] == f">={tested[0]}"


def test_base_images_are_pinned_by_one_digest() -> None:
    pinned = {
        found
        for name in ("Dockerfile", "docker-compose.yml", ".github/workflows/ci.yml")
        for found in re.findall(r"python:3[^\s}]*", (REPOSITORY / name).read_text())
    }
    (base,) = pinned
    assert re.fullmatch(r"python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
