"""A source that follows a faulty API server, and time that passes when a test says so."""

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from services.kube.connection import connector
from services.kube.list_watch import WatchTimeouts
from services.mappings.source import ApiServerSource, Timing
from tests.faults.apiserver import FUNCTIONS, REGIONS, FaultyApiServer
from tests.services.kube.kubeconfigs import write_config
from tests.support import eventually_async

ARRIA = "ce48969398f05f33946d560708be108a"
NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
NLB3 = "f7df405cbd7acf7222f144b0b93acd18"

QUICK = WatchTimeouts(first=0.002, longest=0.02, steady=60.0, watch=300.0)
"""For tests in real time: hardly any pauses."""
USUAL = WatchTimeouts()


@dataclass
class FakeTime:
    """Time that passes by sleeping, at once.

    Attributes:
        now: seconds.
        slept: all that was slept.
        until: after so many seconds, sleeps last for ever.
    """

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)
    until: float = float("inf")

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if self.now >= self.until:
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    def timing(self, jitter: float = 0.5) -> Timing:
        return Timing(self.clock, self.sleep, lambda: jitter)


class SimulatedTime:
    """Time of several who take turns to sleep: it passes once all of them do.

    Args:
        sleepers: how many there are.
        until: sleeps that would last longer than until then last for ever.
        jitter: of each pause, from 0 to 1.

    Attributes:
        now: seconds since the beginning.
        over: set when `until` has come.
    """

    def __init__(self, sleepers: int, until: float, jitter: float) -> None:
        self.now = 0.0
        self.over = asyncio.Event()
        self.until = until
        self._sleepers = sleepers
        self._jitter = jitter
        self._asleep: list[tuple[float, int, asyncio.Event]] = []
        self._number = 0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        awake = asyncio.Event()
        self._number += 1
        heapq.heappush(self._asleep, (self.now + seconds, self._number, awake))
        if len(self._asleep) == self._sleepers:
            if self._asleep[0][0] >= self.until:
                self.over.set()
            else:
                self.now, _, first = heapq.heappop(self._asleep)
                first.set()
        await awake.wait()

    def timing(self) -> Timing:
        return Timing(self.clock, self.sleep, lambda: self._jitter)


def write_kubeconfig(folder: Path, server: str, **user: str) -> Path:
    return write_config(folder, {"server": server}, user or None)


@asynccontextmanager
async def following(
    server: FaultyApiServer,
    folder: Path,
    *,
    pace: WatchTimeouts = QUICK,
    timing: Timing | None = None,
    interval: float = 0.001,
    **user: str,
) -> AsyncIterator[ApiServerSource]:
    """A source that follows the server while the block lasts, and must not end before."""
    kubeconfig = write_kubeconfig(folder, server.url, **user)
    source = ApiServerSource(connector(kubeconfig), pace=pace, interval=interval, timing=timing)
    task = asyncio.create_task(source.follow())
    try:
        yield source
        assert not task.done(), f"the source has ended: {task}"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def put_function(
    server: FaultyApiServer, name: str, namespace: str = "default", *, afu: str = NLB0
) -> int:
    return server.put(FUNCTIONS, namespace, name, interfaceId=ARRIA, afuId=afu, mode="region")


def put_region(server: FaultyApiServer, name: str, namespace: str = "default") -> int:
    return server.put(REGIONS, namespace, name, interfaceId=ARRIA)


def names(source: ApiServerSource, namespace: str = "default") -> set[str]:
    """The names that a namespace can use."""
    return set(source.index.namespace(namespace).by_name)


def mode_of(source: ApiServerSource, name: str) -> str:
    """The mode of a mapping in namespace default."""
    return source.index.namespace("default").by_name[name].resolution.mode


async def until(
    predicate: Callable[[], object],
    what: str = "",
    timeout: float = 60,  # noqa: ASYNC109 - a deadline of the test, not a cancellation
) -> None:
    await eventually_async(predicate, timeout=timeout, interval=0.005, what=what)


async def until_watching(server: FaultyApiServer, source: ApiServerSource) -> None:
    """Waits until both kinds are watched, as far as both sides know."""
    await until(
        lambda: source.loaded and source.watching and server.open_watches == 2,
        "both kinds are watched",
    )


async def until_watching_again(
    server: FaultyApiServer, source: ApiServerSource, watches: int
) -> None:
    """The same, once more watches than so many were asked for."""
    await until(lambda: len(watched(server)) > watches)
    await until_watching(server, source)


def listed(server: FaultyApiServer, plural: str = FUNCTIONS) -> int:
    """How many lists of a kind have begun."""
    return sum(
        request.plural == plural and not request.is_watch and not request.is_later_page
        for request in server.requests
    )


def watched(server: FaultyApiServer, plural: str = FUNCTIONS) -> list[str]:
    """The versions that watches of a kind were asked from."""
    return [
        request.query["resourceVersion"]
        for request in server.requests
        if request.plural == plural and request.is_watch
    ]


@asynccontextmanager
async def watching(
    folder: Path, *, pace: WatchTimeouts = QUICK, timing: Timing | None = None
) -> AsyncIterator[tuple[FaultyApiServer, ApiServerSource]]:
    """An empty server, and a source that watches it."""
    async with (
        FaultyApiServer().running() as server,
        following(server, folder, pace=pace, timing=timing) as source,
    ):
        await until_watching(server, source)
        yield server, source
