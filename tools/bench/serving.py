"""Admissions over TLS: what they cost the server, against fixed bytes from the same process.

Cost is CPU time of the server's main thread as the kernel counts it (`/proc/<pid>/schedstat`).
Rounds of reviews and of fixed bytes take turns on connections of their own, so that whatever else
the machine does hits all of them; a ratio is the median over the rounds. No two reviews of a round
are alike. `tools.bench.serving_process` describes the yardstick.
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
from itertools import cycle, islice
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection

from certs.folder import issue
from simulator.polling import poll_until
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
)
REQUESTS = 100
"""In a round, on a connection."""
DIFFERENT = 200
"""Reviews of a kind, of which no two are alike."""
ROUNDS = 11
END_SECONDS = 120.0
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
            create_connection(("127.0.0.1", self.ports["admission"]), timeout=END_SECONDS) as plain,
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
            process.terminate()
            process.wait(END_SECONDS)


def ports_of(process: "subprocess.Popen[bytes]", folder: Path) -> dict[str, int]:
    """The content of `ports.json`, once a process has written it into a folder."""
    ports = folder / "ports.json"

    def written() -> bool:
        if process.poll() is not None:
            raise AssertionError("the server under measurement does not start")
        return ports.exists()

    poll_until(written, "the server under measurement")
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


def exchange(connection: ssl.SSLSocket, request: bytes) -> bytes:
    """Send a request, and return the body of the answer."""
    connection.sendall(request)
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
