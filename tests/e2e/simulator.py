"""The stand-ins as a cluster of one node, and the settings with which the suite meets it."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import Process, eventually, python_module

NODE = "simulated"
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Simulator:
    folder: Path
    kubelet: Process

    @property
    def api_server(self) -> str:
        return f"unix:{self.folder}/api/api.sock"

    def environment(self) -> dict[str, str]:
        """The settings of a run against it, with processes of this machine."""
        return {
            "API_SERVER": self.api_server,
            "HOST_PROCESSES": "1",
            "ROOT": str(self.folder / "r"),
            "NODE_NAME": NODE,
            "KUBELET_DIR": str(self.folder / "k"),
            "POD_LOGS_DIR": str(self.folder / "k" / "pod-logs"),
            "KUBELET_RESTART": f"kill -HUP {self.kubelet.pid}",
            "PATIENCE": "120",
        }


@contextlib.contextmanager
def simulated() -> Iterator[Simulator]:
    """Start API server and kubelet in a temporary folder, and end them."""
    folder = Path(tempfile.mkdtemp(prefix="ab-", dir="/tmp"))  # short, for the sockets in it
    api, ready = folder / "api", folder / "kubelet.ready"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        server = Process(
            python_module("simulator.apiserver", "--dir", api, "--ports-file", folder / "ports"),
            folder=folder,
            name="api-server",
        )
        stack.callback(server.kill)
        server.ports(folder / "ports", timeout=START_SECONDS)
        kubelet = Process(
            python_module(
                "simulator.kubelet",
                *("--dir", folder / "k", "--node-name", NODE, "--retry-seconds", "0.5"),
                *("--api-server", f"unix:{api}/api.sock", "--ready-file", ready),
            ),
            folder=folder,
            name="kubelet",
        )
        stack.callback(kubelet.kill)
        eventually(lambda: ready.exists() and json.loads(ready.read_text()), timeout=START_SECONDS)
        yield Simulator(folder, kubelet)
