"""Load on a server from a process of its own, so that who asks doesn't slow down who answers.

Run as `python -m tools.bench.load` with a `Task` as JSON on stdin; it prints the 99th percentile of
the latency, in seconds, for each round of each target, which take turns. A connection sends its
next request when it has its answer; all of them are open before the first request.
"""

import asyncio
import ssl
import statistics
import sys
import time
from itertools import cycle
from typing import Final

import msgspec
import uvloop

from tools.bench.measure import post

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "
_GOOD: Final = b"HTTP/1.1 200"


class Task(msgspec.Struct):
    """What to do.

    Attributes:
        authority: file of the CA that signed the servers' certificates.
        bodies: what is sent, one after the other, over and over.
        targets: where it is sent: ports on this machine, and paths such as ``/mutate``.
        connections: how many there are at a time.
        requests: how many each of them sends in a round.
        rounds: how many times each target gets its turn.
    """

    authority: str
    bodies: list[str]
    targets: list[tuple[int, str]]
    connections: int
    requests: int
    rounds: int


class Client(asyncio.Protocol):
    """One connection.

    Attributes:
        taken: the latencies so far, in seconds.
        done: whether all requests have been answered, or why not.
    """

    def __init__(self, requests: list[bytes]) -> None:
        self.taken: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = iter(requests)
        self._begun = 0.0
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # asyncio's signature

    def go_on(self) -> None:
        """Sends the next request, if there is one."""
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            self._transport.close()
            return
        self._begun = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Part of an answer, or all of it."""
        self._buffer += data
        head, end, body = self._buffer.partition(_HEAD_END)
        if not end:
            return
        at = head.index(_LENGTH) + len(_LENGTH)
        if len(body) < int(head[at:].partition(b"\r\n")[0]):
            return
        self.taken.append(time.perf_counter() - self._begun)
        self._buffer = b""
        if head.startswith(_GOOD):
            self.go_on()
        else:
            self.done.set_exception(AssertionError(f"{head!r} {body!r}"))

    def connection_lost(self, error: Exception | None) -> None:
        """The server has closed the connection."""
        if not self.done.done():
            self.done.set_exception(error or AssertionError("the server closed the connection"))


async def measure(task: Task) -> list[list[float]]:
    """Returns, for each target, the 99th percentile of each round."""
    context = ssl.create_default_context(cafile=task.authority)
    found: list[list[float]] = [[] for _ in task.targets]
    for _ in range(task.rounds):
        for (port, path), late in zip(task.targets, found, strict=True):
            late.append(await _round(task, port, path, context))
    return found


async def _round(task: Task, port: int, path: str, context: ssl.SSLContext) -> float:
    requests = [post(path, body.encode()) for body in task.bodies]
    clients = []
    for number in range(task.connections):
        endless = cycle(requests[number % len(requests) :] + requests[: number % len(requests)])
        mine = [next(endless) for _ in range(task.requests)]
        _, client = await asyncio.get_running_loop().create_connection(
            lambda mine=mine: Client(mine),  # type: ignore[misc]  # mypy knows no default here
            "127.0.0.1",
            port,
            ssl=context,
            server_hostname="localhost",
        )
        clients.append(client)
    for client in clients:
        client.go_on()
    await asyncio.gather(*[client.done for client in clients])
    taken = [each for client in clients for each in client.taken]
    return statistics.quantiles(taken, n=100)[98]


def main() -> None:
    """Does what stdin says."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(measure(task))))


if __name__ == "__main__":
    main()
