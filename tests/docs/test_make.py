"""Targets of make that change files, on a copy: all is as they make it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPOSITORY, clean_environment, require

ROOMS = sorted({path.parent.name for path in REPOSITORY.glob("[a-z]*/*.py")} - {"tests"})


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ROOMS:
        left = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=left)
    for name in ("Makefile", "pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    return tmp_path


def make(folder: Path, target: str) -> None:
    """Runs a target with this Python, instead of one that it sets up."""
    done = subprocess.run(
        [require("make"), "-o", "setup", f"PYTHON_IN_VENV={sys.executable}", target],
        cwd=folder,
        env=clean_environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def contents(folder: Path, *patterns: str) -> dict[str, bytes]:
    found = [path for pattern in patterns for path in folder.rglob(pattern)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_the_stubs_are_what_make_proto_makes(copy: Path) -> None:
    stubs = copy / "services" / "kubelet"
    made = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")
    before = contents(stubs, *made)
    assert len(before) == 6
    for name in before:
        (stubs / name).unlink()
    make(copy, "proto")
    assert contents(stubs, *made) == before


def test_nothing_is_left_to_format(copy: Path) -> None:
    before = contents(copy, "*.py")
    make(copy, "format")
    assert contents(copy, "*.py") == before
