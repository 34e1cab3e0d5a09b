"""The API server stand-in as a process that can be killed, frozen and started again."""

import signal
import socket
from pathlib import Path
from typing import Final

from services.process.errors import AccelbindError
from simulator.apiserver.tls import make_pair
from simulator.client import Client, Json
from tests.support import Process, Processes, eventually, python_module

ANNOTATION: Final = "fpga.intel.com/device-plugin-mode"
NODE: Final = "n1"
TOKEN: Final = "a-token-of-the-test"  # noqa: S105 - of a stand-in that only the test can reach


class ApiServer:
    """The test's end of the process. It comes back on its port, with its certificate, but empty."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._processes = processes
        self._folder = folder
        self._process: Process | None = None
        self._frozen = False
        self._mode = ""
        pair = make_pair(["127.0.0.1", "localhost"])
        folder.mkdir()
        for name, content in (
            ("crt", pair.certificate),
            ("key", pair.key),
            ("ca", pair.authority),
        ):
            (folder / name).write_bytes(content)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = int(free.getsockname()[1])

    @property
    def up(self) -> bool:
        """Whether it answers."""
        return self._process is not None and self._process.running and not self._frozen

    def start(self) -> None:
        """Starts it, with the node and its pods."""
        folder = self._folder
        self._process = process = self._processes.start(
            python_module(
                *("simulator.apiserver", "--dir", folder, "--port", str(self._port)),
                *("--token", TOKEN, "--no-scheduler", "--tls-cert", folder / "crt"),
                *("--tls-key", folder / "key", "--tls-ca", folder / "ca"),
                *("--kubeconfig-out", self.kubeconfig),
            ),
            name="apiserver",
        )

        def answers() -> bool:
            process.assert_running()
            try:
                self._ask("GET", "/api/v1/nodes")
            except (OSError, AccelbindError):
                return False
            return True

        eventually(answers, timeout=60, what="the API server stand-in")
        annotations = {ANNOTATION: self._mode} if self._mode else {}
        node = {"kind": "Node", "apiVersion": "v1"}
        self._ask("POST", "/api/v1/nodes", node | {"metadata": _named(NODE, annotations)})

    def annotate(self, mode: str) -> None:
        """Has the node's annotation say so; an empty mode takes it away.

        It does at once, or once it is started again.
        """
        self._mode = mode
        if self.up:
            patch = {"metadata": {"annotations": {ANNOTATION: mode or None}}}
            self._ask("PATCH", f"/api/v1/nodes/{NODE}", patch)

    def kill(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            self._process.kill()
        self._process, self._frozen = None, False

    def freeze(self) -> None:
        """Stops it from answering, with all its connections open."""
        if self.up and self._process is not None:
            self._process.popen.send_signal(signal.SIGSTOP)
            self._frozen = True

    def mend(self) -> None:
        """Has it answer again, whatever is wrong with it."""
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
