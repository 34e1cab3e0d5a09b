"""The API server stand-in as a process that can be killed, frozen and started again."""

import signal
from pathlib import Path
from typing import Final

from simulator.client import Client, Json
from tests.support import Process, Processes, python_module

ANNOTATION: Final = "fpga.intel.com/device-plugin-mode"
NODE: Final = "n1"


class ApiServer:
    """The test's end of the process.

    It comes back empty, on its port, with another certificate and token.
    """

    def __init__(self, processes: Processes, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._processes = processes
        self._folder = folder
        self._process: Process | None = None
        self._frozen = False
        self._mode = ""
        self._port = 0

    @property
    def up(self) -> bool:
        """Whether it answers."""
        return self._process is not None and self._process.running and not self._frozen

    def start(self) -> None:
        """Start it, with the node and its pods."""
        ports = self._folder / "ports"
        ports.unlink(missing_ok=True)
        command = python_module("simulator.apiserver", "--dir", self._folder)
        command += ["--port", str(self._port), "--ports-file", str(ports)]
        self._process = self._processes.start(command, name="apiserver")
        self._port = self._process.ports(ports)["https"]
        annotations = {ANNOTATION: self._mode} if self._mode else {}
        node = {"kind": "Node", "apiVersion": "v1"}
        self._ask("POST", "/api/v1/nodes", node | {"metadata": _named(NODE, annotations)})

    def annotate(self, mode: str) -> None:
        """Have the node's annotation say so; an empty mode takes it away.

        It does at once, or once it is started again.
        """
        self._mode = mode
        if self.up:
            patch = {"metadata": {"annotations": {ANNOTATION: mode or None}}}
            self._ask("PATCH", f"/api/v1/nodes/{NODE}", patch)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
        self._process, self._frozen = None, False

    def freeze(self) -> None:
        """Stop it from answering, with all its connections open."""
        if self.up and self._process is not None:
            self._process.popen.send_signal(signal.SIGSTOP)
            self._frozen = True

    def mend(self) -> None:
        """Have it answer again, whatever is wrong with it."""
        if self._frozen and self._process is not None:
            self._process.popen.send_signal(signal.SIGCONT)
        self._frozen = False
        if not self.up:
            self.start()
        self.annotate(self._mode)

    def _ask(self, method: str, path: str, body: Json | None = None) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        with Client(self.kubeconfig) as client:
            client.ask(method, path, body=body, content_type=kind)


def _named(name: str, annotations: dict[str, str]) -> dict[str, object]:
    return {"name": name, "annotations": annotations}
