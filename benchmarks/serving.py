"""Admissions over TLS: what they cost the server, against fixed bytes from the same process.

Cost is CPU time of the server's main thread as the kernel counts it (`/proc/<pid>/schedstat`).
Rounds of reviews and of fixed bytes take turns on one connection, so that whatever else the machine
does hits both; a ratio is the median over the pairs of rounds. The latency of single requests is
taken with several connections at once.
"""

import contextlib
import json
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection

from benchmarks.reviews import SIZES, recorded, review
from benchmarks.serving_process import CONSTANT
from certs.folder import issue
from services.domain.verdicts import REMEMBERED

Row = tuple[str, ...]
HEADINGS = ("review", "bytes", "fixed µs", "review µs", "ratio", "p99 of 8: fixed ms", "ratio")
REQUESTS = 100
"""In a round."""
ROUNDS = 11
LATE_ROUNDS = 7
CONNECTIONS = 8
START_SECONDS = 30.0
FEW = (10, 1)
MANY = ((10_000, 1), (100_000, 1), (100_000, 1000))


@dataclass(frozen=True, slots=True)
class Server:
    """A server under measurement."""

    pid: int
    port: int
    authority: Path

    def cpu_ns(self) -> int:
        """The CPU time of its main thread so far."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])

    @contextlib.contextmanager
    def connected(self) -> Iterator[ssl.SSLSocket]:
        """A connection over verified TLS."""
        context = ssl.create_default_context(cafile=str(self.authority))
        with (
            create_connection(("127.0.0.1", self.port), timeout=START_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            secured.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # as Go's client does
            yield secured


@contextlib.contextmanager
def serving(mappings: int, namespaces: int) -> Iterator[Server]:
    """Runs the server."""
    with tempfile.TemporaryDirectory(prefix="accelbind-") as name:
        folder = Path(name)
        issued = issue(folder, ["localhost"])
        command = [sys.executable, "-m", "benchmarks.serving_process", name]
        process = subprocess.Popen(
            [*command, "--mappings", str(mappings), "--namespaces", str(namespaces)]
        )
        try:
            yield Server(process.pid, _port(process, folder), issued.ca_certificate)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_SECONDS)


def _port(process: "subprocess.Popen[bytes]", folder: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    ports = folder / "ports.json"
    while not ports.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError("the server under measurement does not start")
        time.sleep(0.02)
    return int(json.loads(ports.read_text())["admission"])


def rows() -> Iterator[Row]:
    """A row a review, then one for each other number of mappings."""
    reviews = {size: [review(size)] for size in SIZES}
    # More pods that ask for something else than the webhook remembers.
    reviews["small, no two alike"] = [review("small", f"c{n}") for n in range(2 * REMEMBERED)]
    reviews |= {f"{size}, recorded": [body] for size, body in recorded().items()}
    with serving(*FEW) as server:
        for name, bodies in reviews.items():
            yield _row(name, server, bodies)
    for mappings, namespaces in MANY:
        with serving(mappings, namespaces) as server:
            yield _row(f"small, {mappings} mappings in {namespaces}", server, reviews["small"])


def _row(name: str, server: Server, bodies: list[bytes]) -> Row:
    fixed = cycle([request(CONSTANT, body) for body in bodies])
    asked = cycle([request("/mutate", body) for body in bodies])
    with server.connected() as connection:
        if b'"patchType":"JSONPatch"' not in exchange(connection, next(asked)):
            raise AssertionError(f"the {name} review is not answered with a patch")
        _cost(server, connection, fixed)
        _cost(server, connection, asked)
        pairs = [
            (_cost(server, connection, fixed), _cost(server, connection, asked))
            for _ in range(ROUNDS)
        ]
    base, cost = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(dear / cheap for cheap, dear in pairs)
    late = [
        (slow_end(server, next(fixed)), slow_end(server, next(asked))) for _ in range(LATE_ROUNDS)
    ]
    late_base = statistics.median(cheap for cheap, _ in late)
    late_ratio = statistics.median(dear / cheap for cheap, dear in late)
    return (
        name,
        f"{len(bodies[0])}",
        f"{base:.0f}",
        f"{cost:.0f}",
        f"{ratio:.2f} x",
        f"{late_base * 1e3:.2f}",
        f"{late_ratio:.2f} x",
    )


def _cost(server: Server, connection: ssl.SSLSocket, requests: Iterator[bytes]) -> float:
    """Microseconds of the server's CPU for one request, from a round of them."""
    begun = server.cpu_ns()
    for request_ in islice(requests, REQUESTS):
        exchange(connection, request_)
    return (server.cpu_ns() - begun) / REQUESTS / 1e3


def request(path: str, body: bytes) -> bytes:
    """A request as an API server sends it."""
    head = (
        f"POST {path}?timeout=10s HTTP/1.1\r\nHost: webhook\r\n"
        "User-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\n"
        "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def exchange(connection: ssl.SSLSocket, request_: bytes) -> bytes:
    """Sends a request, and returns the body of the answer."""
    connection.sendall(request_)
    answer = connection.recv(65536)
    while b"\r\n\r\n" not in answer:
        answer += _more(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += _more(connection)
    if not head.startswith(b"HTTP/1.1 200"):
        raise AssertionError(f"{head!r} {body!r}")
    return body


def _more(connection: ssl.SSLSocket) -> bytes:
    if not (received := connection.recv(65536)):
        raise AssertionError("the server closed the connection")
    return received


def slow_end(server: Server, request_: bytes) -> float:
    """The 99th percentile of a request's latency, in seconds, with several connections."""
    taken: list[float] = []
    threads = [
        threading.Thread(target=_take, args=(server, request_, taken)) for _ in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.quantiles(taken, n=100)[98]


def _take(server: Server, request_: bytes, taken: list[float]) -> None:
    with server.connected() as connection:
        for _ in range(REQUESTS):
            begun = time.perf_counter()
            exchange(connection, request_)
            taken.append(time.perf_counter() - begun)
