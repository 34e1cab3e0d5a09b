"""A plugin to measure: `accelbind plugin` as a process, on a rack of synthetic cards.

The kubelet is the stand-in, in the process that measures, so that what it takes is not counted as
the plugin's.
"""

import compileall
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scan import memory
from simulator.cards import CardSpec, Rack, lay_out
from simulator.kubelet.standin import KubeletStandIn

END_SECONDS = 20.0
SCAN_SECONDS = 5.0
"""Between two looks at the cards: the plugin's default."""


@dataclass(frozen=True, slots=True)
class Node:
    """Cards and a kubelet for a plugin, in folders of their own.

    Args:
        rack: The cards.
        kubelet: The kubelet.
        folder: Where the kubelet's folder and the plugin's output are.
    """

    rack: Rack
    kubelet: KubeletStandIn
    folder: Path

    @contextlib.contextmanager
    def plugin(self, *flags: str) -> Iterator["PluginProcess"]:
        """The plugin, from its start until it has ended."""
        command = [
            *(sys.executable, "-m", "accelbind", "plugin", "--root", str(self.rack.root)),
            *("--kubelet-dir", str(self.folder), "--node-name", "bench"),
            *("--metrics-host", "127.0.0.1", "--metrics-port", "0", "--log-format", "json"),
            *("--ports-file", str(self.folder / "ports"), "--scan-interval", f"{SCAN_SECONDS}"),
            *flags,
        ]
        with (self.folder / "plugin.log").open("wb") as log:
            began = time.perf_counter()
            popen = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield PluginProcess(popen.pid, began, self.folder)
        finally:
            popen.send_signal(signal.SIGTERM)
            try:
                popen.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()


@dataclass(frozen=True, slots=True)
class PluginProcess:
    """A plugin that runs.

    Args:
        pid: Its process id.
        began: When it was started, as `time.perf_counter` has it.
        folder: Where its output is.
    """

    pid: int
    began: float
    folder: Path

    @property
    def resident_mib(self) -> float:
        """What it has in memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def cpu_seconds(self) -> float:
        """What it has used so far, with its threads that have ended."""
        return self._ticks(11, 12)

    @property
    def reader_cpu_seconds(self) -> float:
        """What its child has used, which reads the settings on another core."""
        return self._ticks(13, 14)

    def _ticks(self, *places: int) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(fields[place]) for place in places) / os.sysconf("SC_CLK_TCK")

    def metric(self, name: str) -> float:
        """A value of its metrics, by name and labels as they stand there."""
        port = json.loads((self.folder / "ports").read_text())["metrics"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        for line in text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise LookupError(f"the plugin has no metric {name}")


@contextlib.asynccontextmanager
async def a_node(cards: list[CardSpec]) -> AsyncIterator[Node]:
    """A node with these cards, and nothing that outlasts it but bytecode, which pip makes too."""
    _compile()
    with (
        tempfile.TemporaryDirectory(prefix="ab-", dir=memory()) as root,
        tempfile.TemporaryDirectory(prefix="ab-") as folder,
    ):
        rack = lay_out(Path(root), cards)
        async with KubeletStandIn(Path(folder), node_name="bench") as kubelet:
            yield Node(rack, kubelet, Path(folder))


def _compile() -> None:
    """Has the plugin start from bytecode, as where it is installed, wherever it may be written."""
    checkout = Path(__file__).parents[1]
    for room in ("accelbind", "plugin", "services"):
        compileall.compile_dir(checkout / room, quiet=2)
