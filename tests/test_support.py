import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.support import (
    REPOSITORY,
    Process,
    Processes,
    Soak,
    clean_environment,
    eventually,
    eventually_async,
    group_members,
    soak,
)

pytest_plugins = ["pytester"]


def test_eventually_counts_errors_and_half_written_files_as_not_yet(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = iter(["{", "[]", '{"a": 1}'])

    def read() -> object:
        try:
            found = json.loads(path.read_text())
            assert found != [], "too early"
            return found
        finally:
            path.write_text(next(texts, ""))

    assert eventually(read) == {"a": 1}


def test_eventually_fails_with_what_was_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"the moon did not come true within 0.05 s \(last: 0"):
        eventually(lambda: 0, timeout=0.05, what="the moon")


def test_eventually_async_waits_for_functions_and_coroutines() -> None:
    async def coroutine() -> str:
        return "from a coroutine"

    async def never() -> bool:
        raise AssertionError("not there")

    async def scenario() -> None:
        assert await eventually_async(lambda: "plain") == "plain"
        assert await eventually_async(coroutine) == "from a coroutine"
        with pytest.raises(AssertionError, match="the sun did not come true"):
            await eventually_async(never, timeout=0.05, what="the sun")

    asyncio.run(scenario())


def test_a_process_gives_ports_output_and_exit_code(processes: Processes, tmp_path: Path) -> None:
    ports = tmp_path / "ports.json"
    script = (
        "import json, pathlib, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        f"pathlib.Path({str(ports)!r}).write_text(json.dumps({{'metrics': 4711}}))\n"
        "print('ready to serve', flush=True)\n"
        "signal.pause()\n"
    )
    process = processes.start([sys.executable, "-c", script], name="example")
    assert process.ports(ports) == {"metrics": 4711}
    assert process.wait_for_output("ready") == "ready to serve"
    assert process.terminate() == 3
    assert not process.running


def test_a_process_that_ends_early_fails_the_wait_with_its_output(tmp_path: Path) -> None:
    with (
        Process([sys.executable, "-c", "print('oh dear')"], folder=tmp_path) as process,
        pytest.raises(pytest.fail.Exception, match=r"ended with 0(.|\n)*oh dear"),
    ):
        process.ports(tmp_path / "never")


def test_children_that_outlive_their_leader_are_named_and_killed(tmp_path: Path) -> None:
    started = Processes(tmp_path)
    script = "import subprocess; subprocess.Popen(['sleep', '60'])"
    process = started.start([sys.executable, "-c", script])
    process.wait()
    assert "left" in "".join(started.close())
    eventually(lambda: not group_members(process.pid))


def test_settings_of_the_developer_do_not_reach_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELBIND_MODE", "region")
    monkeypatch.setenv("KUBECONFIG", "/home/me/.kube/config")
    assert not {"ACCELBIND_MODE", "KUBECONFIG"} & clean_environment().keys()
    assert "PATH" in clean_environment()


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


@pytest.mark.parametrize(
    ("require_all", "expected"),
    [
        ("0", {"passed": 1, "skipped": 4, "xfailed": 1}),
        ("1", {"passed": 1, "skipped": 1, "xfailed": 1, "failed": 1, "errors": 2}),
    ],
)
def test_a_skip_fails_where_everything_is_required_and_figures_are_printed(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    require_all: str,
    expected: dict[str, int],
) -> None:
    monkeypatch.setenv("REQUIRE_ALL", require_all)
    monkeypatch.setenv("PYTHONPATH", os.fspath(REPOSITORY))
    pytester.makeconftest((REPOSITORY / "tests" / "conftest.py").read_text())
    pytester.makepyfile(test_example=EXAMPLE, test_module=WHOLE_MODULE)
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "--continue-on-collection-errors"
    )
    assert result.parseoutcomes() == expected
    result.stdout.fnmatch_lines(["*= figures =*", "test_fine: p99.9 is 3 ms"])
    if require_all == "1":
        result.stdout.fnmatch_lines(["*REQUIRE_ALL=1, but*no kubectl*"])


def test_a_short_dir_leaves_room_for_socket_names(short_dir: Path) -> None:
    deepest = short_dir / "node-region" / "device-plugins" / ("x" * 40 + ".sock")
    assert len(os.fspath(deepest)) < 100


def test_a_soak_is_short_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOAK", "SOAK_SECONDS", "SOAK_SEED"):
        monkeypatch.delenv(name, raising=False)
    assert soak(short=60, full=600) == soak(short=60, full=600) == Soak(60, 1)
    monkeypatch.setenv("SOAK", "1")
    assert soak(short=60, full=600).seconds == 600
    monkeypatch.setenv("SOAK_SECONDS", "5")
    monkeypatch.setenv("SOAK_SEED", "7")
    assert soak(short=60, full=600) == Soak(5, 7)
