"""Admissions over TLS: what they cost the server, against fixed bytes from the same process.

Cost is CPU time of the server's main thread as the kernel counts it (`/proc/<pid>/schedstat`).
Rounds of reviews and of fixed bytes take turns on connections of their own, so that whatever else
the machine does hits all of them; a ratio is the median over the rounds. No two reviews of a round
are alike. `tools.bench.serving_process` tells of the yardsticks. The latency of single requests is
taken by a process of its own (`tools.bench.load`) with several connections.
"""

import contextlib
import json
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection

import msgspec

from certs.folder import issue
from tools.bench.load import Task
from tools.bench.measure import post
from tools.bench.reviews import SIZES, different, recorded, review, strangers
from tools.bench.serving_process import PLAIN

Row = tuple[str, ...]
HEADINGS = (
    "review",
    "bytes",
    "fixed µs",
    "review µs",
    "ratio",
    "at most",
    "p99 of 8: fixed ms",
    "ratio",
)
REQUESTS = 100
"""In a round, on a connection."""
DIFFERENT = 200
"""Reviews of a kind, of which no two are alike."""
ROUNDS = 11
LATE_ROUNDS = 7
CONNECTIONS = 8
START_SECONDS = 120.0
FEW = (10, 1)
MANY = ((1_000, 1), (10_000, 1), (10_000, 1000))
STRANGERS = 600
"""Reviews of which each is of another namespace and for another function: more than anything is
remembered of."""
LIMIT = 2.5
"""What the ratio to the fixed bytes should be at most."""
TARGETS = (PLAIN, "/mutate")
"""Paths of the fixed bytes and of reviews."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server under measurement."""

    pid: int
    ports: dict[str, int]
    authority: Path

    def cpu_ns(self) -> int:
        """The CPU time of its main thread so far."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])

    @contextlib.contextmanager
    def connected(self) -> Iterator[ssl.SSLSocket]:
        """A connection over verified TLS to its admission port."""
        context = ssl.create_default_context(cafile=str(self.authority))
        with (
            create_connection(
                ("127.0.0.1", self.ports["admission"]), timeout=START_SECONDS
            ) as plain,
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
        command = [sys.executable, "-m", "tools.bench.serving_process", name]
        process = subprocess.Popen([*command, str(mappings), str(namespaces)])
        try:
            yield Server(process.pid, ports_of(process, folder), issued.ca_certificate)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_SECONDS)


def ports_of(process: "subprocess.Popen[bytes]", folder: Path) -> dict[str, int]:
    """Waits until a process has written `ports.json` into a folder; what is in it."""
    deadline = time.monotonic() + START_SECONDS
    ports = folder / "ports.json"
    while not ports.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError("the server under measurement does not start")
        time.sleep(0.02)
    found: dict[str, int] = json.loads(ports.read_text())
    return found


def rows() -> Iterator[Row]:
    """A row a review, one where each asks for something else, one a number of mappings."""
    reviews = {size: review(size) for size in SIZES}
    reviews |= {f"{size}, recorded": body for size, body in recorded().items()}
    with serving(*FEW) as server:
        for name, body in reviews.items():
            yield _row(name, server, different(body, DIFFERENT))
    number = STRANGERS + 1
    with serving(number, number) as server:
        name = f"small, {STRANGERS} functions in as many namespaces"
        yield _row(name, server, strangers(reviews["small"], STRANGERS))
    for many in MANY:
        with serving(*many) as server:
            name = f"small, {many[0]} mappings in {many[1]}"
            yield _row(name, server, different(reviews["small"], DIFFERENT))


def _row(name: str, server: Server, bodies: list[bytes]) -> Row:
    fixed, cost = zip(*_costs(server, bodies), strict=True)
    late_fixed, late = _latencies(server, bodies)
    return (
        name,
        f"{len(bodies[0])}",
        f"{statistics.median(fixed):.0f}",
        f"{statistics.median(cost):.0f}",
        f"{_ratio(cost, fixed):.2f} x",
        f"{LIMIT} x",
        f"{statistics.median(late_fixed) * 1e3:.2f}",
        f"{_ratio(late, late_fixed):.2f} x",
    )


def _ratio(dear: Sequence[float], cheap: Sequence[float]) -> float:
    """The median over rounds of what the one is of the other."""
    return statistics.median(a / b for a, b in zip(dear, cheap, strict=True))


def _costs(server: Server, bodies: list[bytes]) -> Iterator[tuple[float, ...]]:
    """Microseconds of the server's CPU for a request to each of `TARGETS`, round by round."""
    asked = [cycle([post(path, body) for body in bodies]) for path in TARGETS]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connected()) for _ in TARGETS]
        if b'"patchType":"JSONPatch"' not in exchange(connections[1], next(asked[1])):
            raise AssertionError("a review is not answered with a patch")
        for number in range(ROUNDS + 1):
            pairs = zip(connections, asked, strict=True)
            found = tuple(_cost(server, connection, requests) for connection, requests in pairs)
            if number:  # the first one warms up
                yield found


def _cost(server: Server, connection: ssl.SSLSocket, requests: Iterator[bytes]) -> float:
    """Microseconds of the server's CPU for one request, from a round of them."""
    begun = server.cpu_ns()
    for request in islice(requests, REQUESTS):
        exchange(connection, request)
    return (server.cpu_ns() - begun) / REQUESTS / 1e3


def exchange(connection: ssl.SSLSocket, request: bytes, *, early: bool = False) -> bytes:
    """Sends a request, and returns the body of the answer.

    Args:
        connection: stays open.
        request: all of it.
        early: whether a 503 is an answer too, as long as there are no mappings to judge by.
    """
    connection.sendall(request)
    answer = connection.recv(65536)
    while b"\r\n\r\n" not in answer:
        answer += _more(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += _more(connection)
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503") if early else b"HTTP/1.1 200"):
        raise AssertionError(f"{head!r} {body!r}")
    return body


def _more(connection: ssl.SSLSocket) -> bytes:
    if not (received := connection.recv(65536)):
        raise AssertionError("the server closed the connection")
    return received


def _latencies(server: Server, bodies: list[bytes]) -> list[list[float]]:
    """99th percentiles of the latency, in seconds, for each of `TARGETS`, round by round."""
    task = Task(
        authority=str(server.authority),
        bodies=[body.decode() for body in bodies],
        targets=[(server.ports["admission"], path) for path in TARGETS],
        connections=CONNECTIONS,
        requests=REQUESTS,
        rounds=LATE_ROUNDS,
    )
    told = subprocess.run(
        [sys.executable, "-m", "tools.bench.load"],
        input=msgspec.json.encode(task),
        check=True,
        capture_output=True,
    )
    return msgspec.json.decode(told.stdout, type=list[list[float]])
