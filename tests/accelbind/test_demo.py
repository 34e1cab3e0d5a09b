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


def test_an_interrupted_demo_leaves_nothing(processes: Processes, short_dir: Path) -> None:
    """While it starts; tests/docs/test_kept ends one that is kept."""
    demo = start(processes, short_dir)
    eventually(lambda: len(processes_naming(short_dir)) >= 6, timeout=200, what="its processes")
    demo.popen.send_signal(signal.SIGTERM)
    assert demo.wait(200) == 130, demo.transcript()
    assert processes_naming(short_dir) == []
    assert list(short_dir.iterdir()) == []
