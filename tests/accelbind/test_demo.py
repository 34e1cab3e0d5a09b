import os
import re
import signal
from pathlib import Path

import pytest

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


@pytest.fixture
def demo(processes: Processes, short_dir: Path) -> Process:
    """The demo, as a process that keeps its temporary files in `short_dir`."""
    return processes.accelbind("demo", env={"TMPDIR": str(short_dir), "TERM": "dumb"})


def test_the_demo_sees_all_that_it_expects_and_leaves_nothing(
    demo: Process, short_dir: Path
) -> None:
    assert demo.wait(400) == 0, demo.transcript()
    assert re.search(r"all \d\d expectations held, nothing is left running", demo.stdout)
    assert demo.stderr == ""
    assert list(short_dir.iterdir()) == []
    assert processes_naming(short_dir) == []
    shown = re.sub(r"\s+", " ", demo.stdout)
    for expected in (
        "fpga.intel.com/arria10-nlb0: 1",
        "- /spec/containers/0/resources/limits/fpga.intel.com/arria10-nlb0",
        "/dev/intel-fpga-port.0 rw",
        "/dev/dfl-port.0 rw",
        "FPGA_REGION_1=69528db6eb31577a8c3668f9faa081f6",
        "FPGA_AFU_1=d8424dc4a4a3c413f89e433683f9040b",
        'Error from server (Forbidden): error when creating "5-misspelt.yaml": admission webhook',
        "did you mean fpga.intel.com/arria10-nlb0?",
    ):
        assert expected in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_leaves_nothing_but_what_it_is_told_to_keep(
    processes: Processes, short_dir: Path, number: signal.Signals
) -> None:
    flags = ["--keep"] if number is signal.SIGTERM else []
    demo = processes.accelbind("demo", *flags, env={"TMPDIR": str(short_dir), "TERM": "dumb"})
    demo.wait_for_output("What runs", timeout=200)
    assert len(processes_naming(short_dir)) >= 6
    demo.popen.send_signal(number)
    assert demo.wait(200) == 130, demo.transcript()
    assert processes_naming(short_dir) == []
    if not flags:
        assert list(short_dir.iterdir()) == []
        return
    kept = re.search(r"^kept: (.*)$", demo.stdout, re.MULTILINE)
    assert kept, demo.transcript()
    logs = {path.name for path in (Path(kept[1]) / "logs").iterdir()}
    assert {"webhook.log", "api-server.log", "plugin-node-af.log"} <= logs


def test_a_demo_that_goes_wrong_says_so_and_shows_the_logs(demo: Process, short_dir: Path) -> None:
    def pid_of_webhook() -> int | None:
        row = re.search(r"webhook +(\d+) ", demo.stdout)
        return int(row[1]) if row else None

    pid = eventually(pid_of_webhook, timeout=200, what="the webhook's process id")
    os.kill(pid, signal.SIGKILL)
    assert demo.wait(200) == 1, demo.transcript()
    assert re.fullmatch(r"error: .*(webhook ended with -9|failed calling webhook).*\n", demo.stderr)
    assert "webhook: the end of its log" in demo.stdout
    assert processes_naming(short_dir) == []
    # The client's library keeps a certificate in a file for a moment, in which the kill may come.
    assert list(short_dir.glob("accelbind-*")) == []
