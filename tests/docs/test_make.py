"""Targets of make that the documentation names."""

import shlex
import shutil
from pathlib import Path

import pytest

from tests.making import make
from tests.support import REPOSITORY

PROTOS = " ".join(
    f"services/kubelet/{name}.proto"
    for name in ("deviceplugin", "dra", "dra_health", "pluginregistration", "podresources")
)
OUTPUTS = "--python_out=. --pyi_out=. --grpc_python_out=."
TARGETS = {
    "bench": ["-m tools.bench"],
    "bench 'BENCHES=plugin scan'": ["-m tools.bench plugin scan"],
    "docs": ["-m tools.docs"],
    "e2e HELP=1": ["-m tests.e2e --help"],
    "e2e SIMULATOR=1": ["-m tests.e2e"],
    "format": ["-m ruff check --fix", "-m ruff format"],
    "golden": ["-m tests.golden"],
    "proto": [
        f"-m grpc_tools.protoc -I . {OUTPUTS} {PROTOS}",
    ],
    "soak SECONDS=600 SEED=7": ["-m pytest -m long or soak --timeout=0 -s"],
    "test-kernel": ["-m tests.kernel"],
    "test PYTEST_ARGS=tests/test_readme.py": ["-m pytest tests/test_readme.py"],
}
"""What `make` is told → what it has Python run. Other tests run these modules."""


@pytest.mark.parametrize("words", TARGETS)
def test_targets_start_what_they_are_for(words: str) -> None:
    assert make(*shlex.split(words), python="echo").splitlines() == TARGETS[words]


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
