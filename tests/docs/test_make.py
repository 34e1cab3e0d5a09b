"""Targets of make that the documents name, run for real: in a copy where they change files."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import commands, pages
from tests.making import make
from tests.support import REPOSITORY
from tools.docs.__main__ import PAGES

ROOMS = sorted({path.parent.name for path in REPOSITORY.glob("[a-z]*/*.py")} - {"tests"})


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ROOMS:
        left = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=left)
    for name in ("Makefile", "pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    return tmp_path


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
    make("proto", folder=copy)
    assert contents(stubs, *made) == before


def test_nothing_is_left_to_format(copy: Path) -> None:
    before = contents(copy, "*.py")
    make("format", folder=copy)
    assert contents(copy, "*.py") == before


def typed(beginning: str) -> list[str]:
    """What the documents have people type behind `make`, of the one command that begins so."""
    found = {one.plain for page in pages() for one in commands(page)}
    (command,) = [each for each in found if each.startswith(beginning)]
    return shlex.split(command)[1:]


def test_what_make_docs_makes_is_what_is_committed(copy: Path) -> None:
    shutil.copytree(REPOSITORY / "manifests", copy / "manifests")
    shutil.copytree(REPOSITORY / "docs", copy / "docs")
    for page in PAGES:
        (copy / page).unlink()
    make("docs", folder=copy)
    assert [page for page in PAGES if not (copy / page).exists()] == []
    assert contents(copy / "docs", "*.*") == contents(REPOSITORY / "docs", "*.*")


def test_make_bench_prints_the_tables_that_are_chosen() -> None:
    """Through a Python that only tells how it was called: the benches take minutes."""
    assert make("bench", python="echo") == "-m tools.bench\n"
    assert make("bench", "BENCHES=plugin scan", python="echo") == "-m tools.bench plugin scan\n"


def test_make_golden_writes_what_is_committed(copy: Path) -> None:
    left = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "tests", copy / "tests", ignore=left)
    (copy / "docs").mkdir()
    shutil.copy(REPOSITORY / "docs" / "reference.md", copy / "docs")
    files = copy / "tests" / "golden" / "files"
    (files / "help.txt").unlink()
    (files / "reviews.jsonl").write_text("another\n")
    assert "· reviews.jsonl\n" in make(*typed("make golden"), folder=copy)
    assert contents(files, "*") == contents(REPOSITORY / "tests" / "golden" / "files", "*")


def test_make_test_runs_some_tests() -> None:
    assert " passed" in make(*typed("make test PYTEST_ARGS="))


def test_make_soak_takes_its_length_and_its_seed() -> None:
    """As documented, for a second and with one test rather than for all those minutes."""
    target, *settings = typed("make soak ")
    names = [each.partition("=")[0] for each in settings]
    assert (target, names) == ("soak", ["SECONDS", "SEED"])
    one = "PYTEST_ARGS=tests/fuzz/test_bitstreams.py"
    said = make(target, *settings, "SECONDS=1", "SEED=7", one)
    assert re.search(r"seed 7: \d+ inputs in \d+ s ", said), said  # by default it takes minutes


@pytest.mark.timeout(1800)
def test_make_e2e_brings_a_cluster_of_stand_ins() -> None:
    said = make(*typed("make e2e SIMULATOR="), "PYTEST_ARGS=-k definitions")
    assert " passed" in said
    assert "definitions.py" in said


def test_make_e2e_tells_its_settings() -> None:
    assert "KUBELET_RESTART" in make(*typed("make e2e HELP="))


def test_make_hook_keeps_to_its_folder_whatever_that_is_called(tmp_path: Path) -> None:
    """With a stand-in for PyInstaller, which takes half a minute."""
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    installer = tmp_path / "installer"
    installer.write_text('#!/bin/bash\nprintf "%s\\n" "$@" >called\n')
    installer.chmod(0o755)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist of mine" / ".work").mkdir(parents=True)
    make("hook", f"PYINSTALLER={installer}", "HOOK_DIR=dist of mine", folder=tmp_path)
    assert (tmp_path / "dist").exists()
    assert not (tmp_path / "dist of mine" / ".work").exists()
    called = (tmp_path / "called").read_text().splitlines()
    assert called[called.index("--distpath") + 1] == "dist of mine"
    assert called[called.index("--workpath") + 1] == "dist of mine/.work"


def test_make_lock_resolves_for_both_files_with_hashes_and_names_no_index(tmp_path: Path) -> None:
    """With a stand-in for `uv`, which needs a package index: it writes down how it was called."""
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    uv = tmp_path / ".venv-lock" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text('#!/bin/bash\nwords=("$@")\necho "$@" >"${words[-2]}"\n')
    uv.chmod(0o755)
    make("lock", folder=tmp_path)
    for name, which in (
        ("requirements-dev.lock", "--extra dev"),
        ("requirements.lock", "--constraint requirements-dev.lock"),
    ):
        called = (tmp_path / name).read_text()
        assert called.startswith("pip compile ")
        assert called.endswith(f"{which} --output-file {name} pyproject.toml\n")
        for flag in ("--universal", "--generate-hashes", "--no-emit-index-url"):
            assert f" {flag} " in called
