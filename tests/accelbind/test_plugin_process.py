"""How `accelbind plugin` starts: one process reads its settings, another one serves."""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from accelbind.entry import asks_for_plugin
from tests.support import Process, Processes, eventually

SECONDS = 60.0
MOMENTS = 12


def start(processes: Processes, folder: Path, *flags: str | Path) -> Process:
    return processes.accelbind(
        *("plugin", "--kubelet-dir", folder, "--node-name", "n1", "--mode", "units"),
        *("--metrics-host", "127.0.0.1", "--metrics-port", "0", "--ports-file", folder / "ports"),
        *flags,
    )


def children(process: Process) -> list[int]:
    file = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(each) for each in file.read_text().split()] if file.exists() else []


def reads_for_ever(processes: Processes, folder: Path) -> tuple[Process, int]:
    """A plugin whose settings file gives nothing, and the process that reads it."""
    pipe = folder / "settings"
    os.mkfifo(pipe)
    plugin = start(processes, folder, "--config", pipe)
    (child,) = eventually(lambda: children(plugin), timeout=SECONDS)
    eventually(lambda: waits_to_open(child), timeout=SECONDS, what="the reading of the settings")
    return plugin, child


def waits_to_open(pid: int) -> bool:
    return (
        "fifo" in Path(f"/proc/{pid}/wchan").read_text()
        or "pydantic_core" in Path(f"/proc/{pid}/maps").read_text()
    )


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("plugin", True),
        ("plugin --help", True),
        ("--debug plugin --mode af", True),
        ("", False),
        ("--help", False),
        ("webhook plugin", False),
        ("names plugin", False),
        ("plugins", False),
    ],
)
def test_the_command_is_the_first_word_that_is_no_option(line: str, asked: bool) -> None:
    assert asks_for_plugin(line.split()) is asked


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_asked_to_end_while_its_settings_are_read_it_ends_and_so_does_who_reads(
    short_dir: Path, processes: Processes, number: signal.Signals, code: int
) -> None:
    plugin, child = reads_for_ever(processes, short_dir)
    plugin.popen.send_signal(number)
    assert plugin.wait() == code
    eventually(lambda: gone(child), what="the end of who reads")
    assert plugin.stdout + plugin.stderr == ""


def test_killed_while_its_settings_are_read_it_leaves_nobody_behind(
    short_dir: Path, processes: Processes
) -> None:
    plugin, child = reads_for_ever(processes, short_dir)
    plugin.popen.kill()
    plugin.wait()
    eventually(lambda: gone(child), what="the end of who reads")


def test_the_end_of_who_reads_its_settings_is_an_error_that_says_so(
    short_dir: Path, processes: Processes
) -> None:
    plugin, child = reads_for_ever(processes, short_dir)
    os.kill(child, signal.SIGKILL)
    assert plugin.wait() == 1
    assert plugin.stderr == (
        "error: what reads the settings was ended by SIGKILL: too little memory?\n"
    )


@pytest.mark.parametrize(("number", "codes"), [(signal.SIGTERM, {0}), (signal.SIGINT, {0, 130})])
def test_asked_to_end_at_any_moment_of_its_start_it_ends_and_leaves_nothing(
    short_dir: Path,
    processes: Processes,
    figure: Callable[[str], None],
    number: signal.Signals,
    codes: set[int],
) -> None:
    chance = random.Random(number)  # noqa: S311 - moments, the same each time
    ended = [
        ended_after(chance.uniform(0, 1), start(processes, short_dir), number)
        for _ in range(MOMENTS)
    ]
    assert not list(short_dir.glob("device-plugins/*.sock"))
    figure(f"exit codes {ended}")
    assert set(ended) <= codes


def ended_after(seconds: float, plugin: Process, number: signal.Signals) -> int:
    """The exit code of a plugin that is asked to end that long after its first line."""

    def has_begun() -> object:
        return children(plugin) or plugin.stdout or plugin.stderr or not plugin.running

    eventually(has_begun, timeout=SECONDS, interval=0.001)
    time.sleep(seconds)  # the moment is chance's
    plugin.popen.send_signal(number)
    code = plugin.wait(timeout=SECONDS)
    assert "Traceback" not in plugin.stderr
    eventually(lambda: not plugin.leftovers(), what="the end of who reads")
    return code


def test_help_and_errors_come_from_who_reads_with_the_exit_code(processes: Processes) -> None:
    helped = processes.accelbind("plugin", "--help")
    assert helped.wait() == 0
    assert "Serve this node's cards to its kubelet." in helped.stdout
    mistaken = processes.accelbind("--debug", "plugin", "--units", "none")
    assert mistaken.wait() == 2
    assert mistaken.stderr.splitlines()[-1].startswith("error: Invalid value for '--units'")


def test_help_needs_nothing_of_what_serves(processes: Processes) -> None:
    script = """
import sys
sys.modules["grpc"] = None
sys.argv = ["accelbind", *sys.argv[1:]]
from accelbind.entry import main
sys.exit(main())
"""
    helped = processes.start([sys.executable, "-c", script, "plugin", "--help"])
    assert helped.wait() == 0
    broken = processes.start([sys.executable, "-c", script, "plugin"])
    assert broken.wait() == 70
    assert "error: accelbind has made a mistake: ModuleNotFoundError" in broken.stderr


def test_a_command_line_that_is_run_in_a_process_serves_in_it(
    short_dir: Path, processes: Processes
) -> None:
    script = """
import sys
from accelbind.cli import main
sys.exit(main(["plugin", *sys.argv[1:]]))
"""
    flags = ("--kubelet-dir", short_dir, "--mode", "units", "--ports-file", short_dir / "ports")
    plugin = processes.start([sys.executable, "-c", script, *flags, "--metrics-port", "0"])
    plugin.ports(short_dir / "ports", timeout=SECONDS)
    assert not children(plugin)
    assert plugin.terminate() == 0
