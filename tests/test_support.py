import os
import sys
from pathlib import Path

import pytest

from tests.support import (
    REPOSITORY,
    Processes,
    eventually,
    group_members,
)

pytest_plugins = ["pytester"]


def test_children_that_outlive_their_leader_are_named_and_killed(tmp_path: Path) -> None:
    started = Processes(tmp_path)
    script = "import subprocess; subprocess.Popen(['sleep', '60'])"
    process = started.start([sys.executable, "-c", script])
    process.wait()
    assert "left" in "".join(started.close())
    eventually(lambda: not group_members(process.pid))


EXAMPLE = """
import pytest

def test_needs_a_program():
    pytest.skip("docker is not installed")

def test_needs_shared():
    pytest.skip("the shared material (../shared) is not beside this clone")

@pytest.mark.skipif(True, reason="never here")
def test_marked():
    pass

@pytest.mark.xfail(reason="known")
def test_expected():
    assert False

def test_fine(figure):
    figure("p99.9 is 3 ms")
"""
WHOLE_MODULE = 'import pytest\npytest.skip("no kubectl", allow_module_level=True)\n'


def test_a_skip_fails_where_everything_is_required_and_figures_are_printed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUIRE_ALL", "1")
    monkeypatch.setenv("PYTHONPATH", os.fspath(REPOSITORY))
    pytester.makeconftest((REPOSITORY / "tests" / "conftest.py").read_text())
    pytester.makepyfile(test_example=EXAMPLE, test_module=WHOLE_MODULE)
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "--continue-on-collection-errors"
    )
    assert result.parseoutcomes() == {
        "passed": 1,
        "skipped": 1,
        "xfailed": 1,
        "failed": 1,
        "errors": 2,
    }
    result.stdout.fnmatch_lines(["*= figures =*", "test_fine: p99.9 is 3 ms"])
    result.stdout.fnmatch_lines(["*REQUIRE_ALL=1, but*no kubectl*"])
