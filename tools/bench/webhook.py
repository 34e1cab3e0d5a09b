"""The webhook process with an API server: its memory, and the time until mappings are synced."""

import contextlib
import http.client
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from certs.folder import issue
from simulator.polling import poll_until
from tools.bench import api_server
from tools.bench.serving import END_SECONDS, Server, ports_of

Row = tuple[str, ...]
HEADINGS: Final = ("mappings", "namespaces", "ready s", "at most", "CPU s", "MiB", "at most")
MAPPINGS: Final = ((0, 1), (10_000, 1), (10_000, 1000))
READY_LIMIT: Final = "2 s"
MEMORY_LIMIT: Final = "90 MiB"


def rows() -> Iterator[Row]:
    """A row for each number of mappings and of namespaces.

    `ready s` counts from the start of listening, `CPU s` from the start of the process.
    """
    for number, namespaces in MAPPINGS:
        with tempfile.TemporaryDirectory(prefix="accelbind-bench-") as name:
            folder = Path(name)
            with (
                api_server.serving(folder / "api", number, namespaces) as address,
                _running(folder, address) as server,
            ):
                begun = time.perf_counter()
                poll_until(lambda: _is_ready(server), "the webhook", pause=0.005)
                ready, cpu = time.perf_counter() - begun, server.cpu_ns() / 1e9
                resident = _resident_mib(server.pid)
        figures = (f"{ready:.2f}", READY_LIMIT, f"{cpu:.2f}", f"{resident:.1f}", MEMORY_LIMIT)
        yield (f"{number}", f"{namespaces}", *figures)


@contextlib.contextmanager
def _running(folder: Path, address: str) -> Iterator[Server]:
    """Run a webhook that follows the API server at an address."""
    issued = issue(folder, ["localhost"])
    command = [
        *(sys.executable, "-m", "accelbind", "webhook", "--log-level", "error"),
        *("--api-server", address, "--ports-file", folder / "ports.json"),
        *("--tls-cert", issued.certificate, "--tls-key", issued.key),
        *("--host", "127.0.0.1", "--port", "0", "--drain-seconds", "0"),
        *("--metrics-host", "127.0.0.1", "--metrics-port", "0"),
    ]
    process = subprocess.Popen(list(map(str, command)))
    try:
        yield Server(process.pid, ports_of(process, folder), issued.ca_certificate)
    finally:
        process.terminate()
        process.wait(END_SECONDS)


def _is_ready(server: Server) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", server.ports["metrics"], timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK


def _resident_mib(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return float(match[1]) / 1024 if match else 0.0
