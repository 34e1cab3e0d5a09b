"""The webhook process as it is run, following an API server: what it weighs, and when it is ready.

It is asked for a review every few milliseconds from the moment it listens: how long the slowest
answer takes tells whether taking in 100 000 mappings holds up anybody. Then its watches are told
that they are too old, and it lists all of them again, beside those that serve meanwhile.
"""

import contextlib
import http.client
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certs.folder import issue
from tools.bench import sync
from tools.bench.measure import post
from tools.bench.reviews import review
from tools.bench.serving import Server, exchange, ports_of

Row = tuple[str, ...]
HEADINGS: Final = (
    "mappings",
    "namespaces",
    "ready s",
    "CPU s",
    "MiB",
    "over empty",
    "at the most",
    "after lists anew",
    "slowest review ms",
)
AGAIN: Final = 3
"""How often all mappings are listed anew."""
END_SECONDS: Final = 120.0
PAUSE: Final = 0.005
MIB: Final = 1024.0
"""Of KiB, which the kernel counts in."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a webhook took.

    Attributes:
        ready: seconds from the first ask of whether it is ready to yes.
        cpu: seconds of CPU of the whole process until then, its start included.
        resident: MiB when it was.
        most: MiB at the most until the end.
        after: MiB after `AGAIN` more lists.
        slowest: seconds that the slowest review took.
    """

    ready: float
    cpu: float
    resident: float
    most: float
    after: float
    slowest: float


def rows() -> Iterator[Row]:
    """A row a number of mappings and of namespaces."""
    empty = _measure(0, 1)
    yield _row(0, 1, empty, empty)
    for namespaces in (1, 1000):
        yield _row(sync.NUMBER, namespaces, _measure(sync.NUMBER, namespaces), empty)


def _row(number: int, namespaces: int, found: Measured, empty: Measured) -> Row:
    return (
        f"{number}",
        f"{namespaces}",
        f"{found.ready:.2f}",
        f"{found.cpu:.2f}",
        f"{found.resident:.1f}",
        f"{found.resident - empty.resident:.1f}",
        f"{found.most:.1f}",
        f"{found.after:.1f}",
        f"{found.slowest * 1e3:.0f}",
    )


def _measure(number: int, namespaces: int) -> Measured:
    with (
        tempfile.TemporaryDirectory(prefix="accelbind-bench-") as name,
        sync.serving(number, namespaces) as port,
    ):
        folder = Path(name)
        (folder / "kubeconfig").write_text(sync.kubeconfig(f"http://127.0.0.1:{port}"))
        with _running(folder) as server, _asking(server) as taken:
            begun = time.perf_counter()
            _until(lambda: _get(server.ports["metrics"], "/readyz")[0] == http.client.OK)
            ready, cpu = time.perf_counter() - begun, server.cpu_ns() / 1e9
            resident = _kib(server.pid, "VmRSS")
            for _ in range(AGAIN):
                _list_anew(port)
            after, most = _kib(server.pid, "VmRSS"), _kib(server.pid, "VmHWM")
        return Measured(ready, cpu, resident / MIB, most / MIB, after / MIB, max(taken))


@contextlib.contextmanager
def _running(folder: Path) -> Iterator[Server]:
    """Runs a webhook that follows the API server of the folder's kubeconfig."""
    issued = issue(folder, ["localhost"])
    command = [sys.executable, "-m", "accelbind", "webhook", "--log-level", "error"]
    command += [
        "--kubeconfig",
        str(folder / "kubeconfig"),
        "--ports-file",
        str(folder / "ports.json"),
    ]
    command += ["--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")]
    command += ["--host", "127.0.0.1", "--port", "0", "--drain-seconds", "0"]
    command += ["--metrics-host", "127.0.0.1", "--metrics-port", "0"]
    process = subprocess.Popen(command)
    try:
        yield Server(process.pid, ports_of(process, folder), issued.ca_certificate)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(END_SECONDS)


@contextlib.contextmanager
def _asking(server: Server) -> Iterator[list[float]]:
    """Has reviews answered all the while, by a 503 at first; how long each took, in seconds."""
    taken: list[float] = []
    done = threading.Event()
    request = post("/mutate", review("small"))

    def ask() -> None:
        with server.connected() as connection:
            while not done.wait(PAUSE):
                begun = time.perf_counter()
                exchange(connection, request, early=True)
                taken.append(time.perf_counter() - begun)

    asking = threading.Thread(target=ask)
    asking.start()
    _until(lambda: taken)
    try:
        yield taken
    finally:
        done.set()
        asking.join()


def _list_anew(port: int) -> None:
    """Has the API server end the watches as too old, and waits until all was listed again."""
    listed = int(_get(port, "/lists")[1])
    _until(lambda: int(_get(port, "/expire")[1]) > 0)
    _until(lambda: int(_get(port, "/lists")[1]) > listed)
    _until(lambda: int(_get(port, "/watches")[1]) > 0)


def _get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=END_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", path)
        found = connection.getresponse()
        return found.status, found.read().decode()


def _kib(pid: int, field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return float(found[1]) if found else 0.0


def _until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + END_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise AssertionError("the webhook under measurement does not get there")
        time.sleep(PAUSE)
