"""Admissions over TLS: what they cost the server, against fixed bytes from the same process.

Cost is CPU time of the server's main thread as the kernel counts it (`/proc/<pid>/schedstat`).
Rounds of reviews and of fixed bytes alternate, so that other load on the machine affects both. A
ratio is the median of all rounds. No two reviews of a round are alike. The fixed bytes come from
`tools.bench.serving_process`.
"""

import contextlib
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPResponse, HTTPSConnection
from itertools import cycle, islice
from pathlib import Path

from certs.folder import issue
from simulator.polling import poll_until
from tools.bench.reviews import SIZES, different, review
from tools.bench.serving_process import PLAIN

Row = tuple[str, ...]
HEADINGS = (
    "review",
    "bytes",
    "fixed µs",
    "review µs",
    "ratio",
    "at most",
)
REQUESTS = 100
"""Per round."""
DIFFERENT = 200
"""Reviews per size, no two alike."""
ROUNDS = 11
END_SECONDS = 120.0
MAPPINGS = 10
LIMIT = 3.0
"""Of the ratio of a review to the fixed bytes."""
TARGETS = (PLAIN, "/mutate")
"""Paths of the fixed bytes and of reviews."""
HEAD = (
    b"POST %b?timeout=10s HTTP/1.1\r\nHost: webhook\r\nUser-Agent: kube-apiserver-admission\r\n"
    b"Content-Length: %d\r\nAccept: application/json, */*\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Server:
    pid: int
    ports: dict[str, int]
    authority: Path

    def cpu_ns(self) -> int:
        """The CPU time of its main thread so far."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])

    def connect(self) -> HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.authority))
        port = self.ports["admission"]
        return HTTPSConnection("localhost", port, timeout=END_SECONDS, context=context)


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="accelbind-") as name:
        folder = Path(name)
        issued = issue(folder, ["localhost"])
        command = [sys.executable, "-m", "tools.bench.serving_process", name, str(MAPPINGS)]
        process = subprocess.Popen(command)
        try:
            yield Server(process.pid, ports_of(process, folder), issued.ca_certificate)
        finally:
            process.terminate()
            process.wait(END_SECONDS)


def ports_of(process: "subprocess.Popen[bytes]", folder: Path) -> dict[str, int]:
    """Wait for a process to write `ports.json` into a folder; returns its content."""
    ports = folder / "ports.json"

    def written() -> bool:
        if process.poll() is not None:
            raise AssertionError("the server has ended before it listened")
        return ports.exists()

    poll_until(written, "the server")
    by_name: dict[str, int] = json.loads(ports.read_text())
    return by_name


def rows() -> Iterator[Row]:
    with serving() as server:
        for size in SIZES:
            yield _row(size, server, different(review(size), DIFFERENT))


def _row(name: str, server: Server, bodies: list[bytes]) -> Row:
    fixed, cost = zip(*_costs(server, bodies), strict=True)
    return (
        name,
        f"{len(bodies[0])}",
        f"{statistics.median(fixed):.0f}",
        f"{statistics.median(cost):.0f}",
        f"{statistics.median(a / b for a, b in zip(cost, fixed, strict=True)):.2f} x",
        f"{LIMIT} x",
    )


def _costs(server: Server, bodies: list[bytes]) -> Iterator[tuple[float, ...]]:
    """Microseconds of the server's CPU for a request to each of `TARGETS`, round by round."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(contextlib.closing(server.connect())) for _ in TARGETS]
        if b'"patchType":"JSONPatch"' not in _exchange(connections[1], TARGETS[1], bodies[0]):
            raise AssertionError("a review is not answered with a patch")
        rounds = [cycle(bodies) for _ in TARGETS]
        for number in range(ROUNDS + 1):
            costs = tuple(map(_cost, [server] * len(TARGETS), connections, TARGETS, rounds))
            if number:  # the first one warms up
                yield costs


def _cost(server: Server, connection: HTTPSConnection, path: str, bodies: Iterator[bytes]) -> float:
    """Microseconds of the server's CPU for one request, from a round of them."""
    begun = server.cpu_ns()
    for body in islice(bodies, REQUESTS):
        _exchange(connection, path, body)
    return (server.cpu_ns() - begun) / REQUESTS / 1e3


def _exchange(connection: HTTPSConnection, path: str, body: bytes) -> bytes:
    """Send a request in one piece, as `http.client` cannot; returns the body of the answer."""
    if connection.sock is None:
        connection.connect()
    connection.sock.sendall(HEAD % (path.encode(), len(body)) + body)
    with HTTPResponse(connection.sock) as response:
        response.begin()
        answer = response.read()
    if response.status != HTTPStatus.OK:
        raise AssertionError(f"{response.status} {answer!r}")
    return answer
