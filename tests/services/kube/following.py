"""A source that follows an API server with faults, and time that passes when a test says so."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from services.kube.client import ClusterClient
from services.kube.watches import USUAL_TIMING, WatchTiming
from services.mappings.kinds import TABLE
from services.mappings.source import ApiServerSource
from simulator.apiserver import http_server
from simulator.apiserver.reading import bookmark_line
from simulator.apiserver.resources import FUNCTIONS
from simulator.apiserver.standin import ApiServerStandIn
from tests.services.building import accelerator, function, region
from tests.support import background, eventually_async

QUICK = WatchTiming(first=0.002, longest=0.02, steady=60.0, watch=300.0)
"""For tests in real time: hardly any pauses."""
STEADY_AT_ONCE = replace(QUICK, steady=0.0)
"""The same, where the first event of a watch shows that it works again."""


@dataclass
class FakeTime:
    """Time that passes by sleeping, at once; after `until`, sleeps last forever."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)
    until: float = float("inf")

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if self.now >= self.until:
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    def timing(self, usual: WatchTiming = USUAL_TIMING, jitter: float = 0.5) -> WatchTiming:
        return replace(usual, clock=lambda: self.now, sleep=self.sleep, jitter=lambda: jitter)


class MappingServer(ApiServerStandIn):
    """The API server stand-in, with what tests of mappings ask of it."""

    def put_function(self, name: str, namespace: str = "default", *, mode: str = "region") -> None:
        self.put(function(name, mode, namespace=namespace))

    def put_region(self, name: str, namespace: str = "default") -> None:
        self.put(region(name, namespace=namespace))

    def fill(self, objects: Iterable[tuple[str, bytes]]) -> None:
        """Store functions that were always there, in whatever bytes, by namespace/name."""
        self.store.shelf(FUNCTIONS).objects.update(objects)

    def send_bookmarks(self) -> None:
        for watch in self.watches:
            watch.send(bookmark_line(watch.resource, self.store.revision))

    def send_line(self, line: bytes) -> None:
        """Send a line to the open watches of functions."""
        for watch in self.watches:
            if watch.resource == FUNCTIONS:
                watch.send(line)

    def page_limits(self) -> list[str]:
        """The limits of the pages of functions that were requested."""
        return [request.query["limit"] for request in self._requests() if not request.is_watch]

    def list_count(self) -> int:
        """How many lists of functions have begun."""
        return sum(
            not request.is_watch and "continue" not in request.query for request in self._requests()
        )

    def watch_versions(self) -> list[str]:
        """The versions that watches of functions were requested from."""
        return [each.query["resourceVersion"] for each in self._requests() if each.is_watch]

    def _requests(self) -> list[http_server.Request]:
        requests = [seen.request for seen in self.seen]
        return [each for each in requests if each.path.endswith(FUNCTIONS.plural)]


@asynccontextmanager
async def following(
    server: ApiServerStandIn, timing: WatchTiming = QUICK
) -> AsyncIterator[ApiServerSource]:
    """A source that follows the server while the block lasts, and must not end before."""
    source = ApiServerSource(ClusterClient(server.access), timing=timing, interval=0.001)
    async with background(source.follow()):
        yield source


@asynccontextmanager
async def watching(
    folder: Path, timing: WatchTiming = QUICK
) -> AsyncIterator[tuple[MappingServer, ApiServerSource]]:
    """An empty server, and a source that watches it."""
    async with MappingServer(folder) as server, following(server, timing) as source:
        await until_watching(server, source)
        yield server, source


def names(source: ApiServerSource, namespace: str = "default") -> set[str]:
    """The names that a namespace can use."""
    return set(source.index.namespace(namespace).by_name)


async def until(predicate: Callable[[], object], what: str = "") -> None:
    await eventually_async(predicate, interval=0.005, what=what)


async def until_watching(server: MappingServer, source: ApiServerSource, *, after: int = 0) -> None:
    """Wait until all kinds are watched, once more than `after` watches were requested."""
    await until(
        lambda: (
            len(server.watch_versions()) > after
            and source.loaded
            and source.watching
            and len(server.watches) == len(TABLE)
        ),
        "all kinds are watched",
    )


def put_one_of_each_kind(server: MappingServer) -> None:
    server.put_function("x")
    server.put_region("y")
    server.put(accelerator("a", "a.example/x", namespace="default"))


def recovered(server: MappingServer, source: ApiServerSource) -> bool:
    """Whether an event of each kind has shown that watches work again."""
    put_one_of_each_kind(server)
    return source.error == ""
