"""The stand-ins as a cluster of one node, and the settings with which the suite meets it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simulator.demo.stage import Stage, temporary_folder

NODE = "simulated"


@dataclass(frozen=True, slots=True)
class Simulator:
    folder: Path
    kubelet: int
    """Its process."""

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
            "KUBELET_RESTART": f"kill -HUP {self.kubelet}",
            "PATIENCE": "120",
        }


@contextlib.contextmanager
def simulated() -> Iterator[Simulator]:
    """Start API server and kubelet in a temporary folder, and end them."""
    with temporary_folder() as folder:
        stage, api, ready = Stage(folder), folder / "api", folder / "ready"
        try:
            ports = ("--ports-file", folder / "ports")
            stage.start("api-server", "simulator.apiserver", "--dir", api, *ports)
            stage.announced(folder / "ports", "the API server")
            kubelet = stage.start(
                *("kubelet", "simulator.kubelet", "--dir", folder / "k", "--node-name", NODE),
                *("--retry-seconds", "0.5", "--api-server", f"unix:{api}/api.sock"),
                *("--ready-file", ready),
            )
            stage.announced(ready, "the kubelet")
            yield Simulator(folder, kubelet.process.pid)
        finally:
            stage.kill()
