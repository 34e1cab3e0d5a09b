"""Count what a fleet asks of an API server, at the clients, and what a bystander notices."""

import asyncio
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from services.kube.access import Access
from services.kube.client import BadStatus, ClusterClient, HttpResponse
from services.process.errors import ClusterError

REFUSED = 429


class Counts:
    """Requests by second, verb and resource; bytes of answers; open watches."""

    def __init__(self) -> None:
        self.requests = Counter[tuple[int, str, str]]()
        self.nodes: defaultdict[int, set[str]] = defaultdict(set)
        """The nodes that made a request, by second."""
        self.bytes = 0
        self.watches = 0
        self.refusing = 0.0
        """Until when requests get 429 instead of an answer."""
        self._started = time.monotonic()

    @property
    def second(self) -> int:
        """Seconds since the start."""
        return int(time.monotonic() - self._started)

    def add(self, node: str, verb: str, path: str) -> None:
        """Count a request, or refuse it."""
        second = self.second
        self.requests[second, verb, resource_of(path)] += 1
        self.nodes[second].add(node)
        if time.monotonic() < self.refusing:
            raise BadStatus("too many requests", REFUSED, retry_after=5)

    def by_kind(self, first: int, last: int) -> dict[str, int]:
        """Requests between two seconds, by verb and resource."""
        found = Counter[str]()
        for (second, verb, resource), number in self.requests.items():
            if first <= second <= last:
                found[f"{verb} {resource}"] += number
        return dict(found.most_common())

    def by_second(self, first: int, last: int) -> list[int]:
        """Requests of each second."""
        found = Counter[int]()
        for (second, _, _), number in self.requests.items():
            found[second] += number
        return [found[second] for second in range(first, last + 1)]

    def most_nodes(self, first: int, last: int) -> int:
        """The most nodes that made requests in one second."""
        return max((len(self.nodes[second]) for second in range(first, last + 1)), default=0)


def resource_of(path: str) -> str:
    """The resource in a path, without names."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    return parts[2] if parts[0] == "namespaces" and len(parts) > 2 else parts[0]


class CountingClient(ClusterClient):
    """A node's client, with a connection of its own."""

    def __init__(self, access: Access, node: str, counts: Counts) -> None:
        super().__init__(access)
        self._node = node
        self._counts = counts
        self.watches = asyncio.Event()
        """Set once it has watched."""

    async def request(self, method: str, path: str, **more: Any) -> HttpResponse:  # noqa: ANN401 - the same
        """As its parent, counted."""
        self._counts.add(self._node, method, path)
        answer = await super().request(method, path, **more)
        self._counts.bytes += len(answer.body)
        return answer

    @asynccontextmanager
    async def lines(
        self, path: str, params: Mapping[str, str | int], *, seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """As its parent, counted."""
        self._counts.add(self._node, "WATCH", path)
        async with super().lines(path, params, seconds=seconds) as lines:
            self._counts.watches += 1
            self.watches.set()
            try:
                yield lines
            finally:
                self._counts.watches -= 1


class Bystander:
    """Somebody else's requests: five a second, and how long each takes."""

    def __init__(self, access: Access) -> None:
        self._client = ClusterClient(access)
        self._seconds: list[float] = []
        self.failed = 0

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            started = time.monotonic()
            try:
                await self._client.get("/api/v1/namespaces/default")
                self._seconds.append(time.monotonic() - started)
            except ClusterError:
                self.failed += 1
            await asyncio.sleep(max(0.0, 0.2 - (time.monotonic() - started)))

    def take(self) -> dict[str, float]:
        """The latencies since the last call, in milliseconds, and how many requests failed."""
        seconds, self._seconds = sorted(self._seconds) or [0.0], []
        failed, self.failed = self.failed, 0
        return {
            "median": round(1000 * statistics.median(seconds), 1),
            "p99": round(1000 * seconds[int(0.99 * (len(seconds) - 1))], 1),
            "failed": failed,
        }
