import os
import re
import signal
from pathlib import Path

from tests.support import Process, Processes, eventually


def processes_naming(folder: Path) -> list[str]:
    """Command lines, of whatever process, in which a folder is named."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has just ended
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


def start(processes: Processes, folder: Path, *options: str | Path) -> Process:
    """The demo, as a process that keeps its temporary files in a folder."""
    environment = {"TMPDIR": str(folder), "TERM": "dumb", "COLUMNS": "80"}
    return processes.accelbind("demo", *options, env=environment)


def test_the_demo_sees_all_that_it_expects_and_leaves_nothing(
    processes: Processes, short_dir: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "demo.svg"
    demo = start(processes, short_dir, "--svg", picture)
    assert demo.wait(400) == 0, demo.transcript()
    assert demo.stderr == ""
    assert list(short_dir.iterdir()) == []
    assert processes_naming(short_dir) == []
    lines = demo.stdout.splitlines()
    assert len(lines) < 105
    assert max(map(len, lines)) <= 80
    shown = re.sub(r"\s+", " ", demo.stdout)
    for expected in (
        "the API server copies limits to requests before it calls the webhook",
        "- arria10-nlb0 + af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs = 1",
        "+ FPGA_AFU_1=d8424dc4a4a3c413f89e433683f9040b",
        "programmed dfl-port.0 with AFU d8424dc4a4a3c413f89e433683f9040b",
        "/dev/dfl-port.1 rw on node-region, in self-test and loopback",
        "- gpu-small + nvidia.com/mig-1g.10gb = 1 + MODEL_TIER=small",
        "npu intel-npu node-af accel0 running",
        "did you mean arria10-nlb0?",
        "pod asked for node device outcome function arria10-nlb0 node-af intel-fpga-port.0 running",
        "misspelled arria10-nbl0 - - refused (expected)",
        "8 of 8 pods behaved as expected; nothing is left running",
    ):
        assert expected in shown, demo.stdout
    svg = picture.read_text()
    assert "</svg>" in svg
    assert "nothing&#160;is&#160;left&#160;running" in svg


def test_an_interrupted_demo_leaves_nothing(processes: Processes, short_dir: Path) -> None:
    """While it starts; tests/docs/test_kept ends one that is kept."""
    demo = start(processes, short_dir)
    eventually(lambda: len(processes_naming(short_dir)) >= 6, timeout=200, what="its processes")
    demo.popen.send_signal(signal.SIGTERM)
    assert demo.wait(200) == 130, demo.transcript()
    assert processes_naming(short_dir) == []
    assert list(short_dir.iterdir()) == []


def test_a_demo_that_goes_wrong_says_so_and_shows_the_logs(
    processes: Processes, short_dir: Path
) -> None:
    demo = start(processes, short_dir, "-v")

    def pid_of_webhook() -> int | None:
        row = re.search(r"webhook +(\d+)", demo.stdout)
        return int(row[1]) if row else None

    pid = eventually(pid_of_webhook, timeout=200, what="the webhook's process id")
    os.kill(pid, signal.SIGKILL)
    # Either something waits for the webhook in vain (2), or the next pod is refused (1).
    assert demo.wait(200) in {1, 2}, demo.transcript()
    assert re.search(r"webhook ended with -9|failed calling webhook", demo.stdout + demo.stderr)
    assert "webhook: the end of its log" in demo.stdout
    assert processes_naming(short_dir) == []
    assert list(short_dir.iterdir()) == []
