"""Watches that don't work while lists do: how old mappings get, how often is asked, what is logged.

Pauses pass in simulated time, over real sockets.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from structlog.testing import capture_logs

from services.kube.list_watch import WatchTiming
from simulator.apiserver.calls import StatusError
from simulator.apiserver.faults import Answer, lists, watches
from simulator.apiserver.http_server import Cut, Request, Response
from simulator.apiserver.reading import event_line
from simulator.apiserver.resources import ACCELERATORS, FUNCTIONS, REGIONS
from simulator.apiserver.store import encode
from tests.services.building import function
from tests.services.kube.following import (
    QUICK,
    FakeTime,
    MappingServer,
    SimulatedTime,
    following,
    names,
    put_one_of_each_kind,
    until,
    until_watching,
    watching,
)

pytestmark = pytest.mark.anyio

TIMING = WatchTiming(watch=30.0)
"""The webhook's, but for `--max-staleness`."""
MINUTE = 60.0
MOST = 24
"""Requests in a minute of broken watches, of three kinds of mappings."""
ALL_KINDS = [FUNCTIONS.plural, ACCELERATORS.plural, REGIONS.plural]

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Break: TypeAlias = Callable[[Sleep], Answer]
"""A way in which watches are answered, by a server whose time passes by sleeping."""


def error_line(code: int, text: str) -> bytes:
    return event_line("ERROR", encode(StatusError(code, text).status()))


def streaming(*lines: bytes, seconds: float = 0.0, cut: bool = False) -> Break:
    """Each watch sends these lines, lasts so long, and ends or is cut."""

    def broken(sleep: Sleep) -> Answer:
        async def stream() -> AsyncGenerator[bytes]:
            for line in lines:
                yield line
            if seconds:
                await sleep(seconds)  # simulated
            if cut:
                raise Cut

        return lambda _request: Response(200, stream=stream())

    return broken


def refusing(code: int) -> Break:
    return lambda _sleep: lambda _request: Response(code, StatusError(code, "not now").body())


ODD = event_line("MODIFIED", encode(function("x", "none", namespace="other")))

BROKEN: dict[str, Break] = {
    "an event, then ERROR": streaming(ODD, error_line(500, "no progress")),
    "an end at once": streaming(),
    "a cut after 2 s": streaming(seconds=2.0, cut=True),
    "HTTP 500": refusing(500),
}


@pytest.mark.parametrize(
    ("how", "jitter"),
    [(how, 1.0 if how == "HTTP 500" else 0.0) for how in BROKEN],
)
async def test_broken_watches_are_cheap_logged_once_counted_and_changes_arrive_within_a_minute(
    tmp_path: Path, how: str, jitter: float
) -> None:
    """Counted from the start on, which is when pauses are shortest."""
    time = SimulatedTime(len(ALL_KINDS), 4 * MINUTE, jitter)
    requests: Counter[int] = Counter()
    ages: list[float] = []

    def count(_request: Request) -> bool:
        """Count a request, and match none."""
        requests[int(time.now // MINUTE)] += 1
        ages.append(source.age if time.now else 0.0)
        return False

    async with MappingServer(tmp_path) as server:
        server.put_function("deleted")
        server.put_region("kept")
        with (
            capture_logs() as logs,
            server.faults.answering(BROKEN[how](time.sleep), matches=watches),
            server.faults.failing(500, matches=count),
        ):
            async with following(server, time.timing(TIMING)) as source:
                await asyncio.wait_for(time.over.wait(), 60)
                await until(lambda: names(source) >= {"deleted", "kept"})
                server.drop("AcceleratorFunction", "deleted")
                time.extend(MINUTE)
                await asyncio.wait_for(time.over.wait(), 60)
                await until(lambda: names(source) == {"kept"})
                assert sum(source.watch_failures.values()) >= 6
                assert source.error
    assert max(requests.values()) <= MOST, requests
    assert max(ages) <= MINUTE
    # On a busy machine a request may time out meanwhile, which is another reason to be told of.
    warned = Counter(
        (entry["kind"], entry["reason"])
        for entry in logs
        if "not being updated" in entry["event"] and entry["log_level"] == "warning"
    )
    assert {kind for kind, _ in warned} == {*ALL_KINDS}
    assert set(warned.values()) == {1}


async def test_a_watch_that_never_ends_is_cut_counted_logged_once_and_followed_by_a_list(
    tmp_path: Path,
) -> None:
    async def stream() -> AsyncGenerator[bytes]:
        yield b'{"type":"BOOKMARK","object":{"kind":"'
        while True:
            await asyncio.sleep(0.05)  # the moment between two bytes
            yield b"x"

    def hang(_request: Request) -> Response:
        return Response(200, stream=stream())

    timing = WatchTiming(first=0.01, longest=0.02, steady=0.5, watch=1.0, grace=0.1)
    async with MappingServer(tmp_path) as server:
        server.put_function("deleted")
        with server.faults.answering(hang, matches=watches), capture_logs() as logs:
            async with following(server, timing) as source:
                await until(lambda: names(source) == {"deleted"})
                server.drop("AcceleratorFunction", "deleted")
                await until(lambda: names(source) == set())
                await until(lambda: min(source.watch_failures.values()) >= 2)
    warned = [entry["kind"] for entry in logs if entry["log_level"] == "warning"]
    assert sorted(warned) == ALL_KINDS
    assert not [entry for entry in logs if "being updated again" in entry["event"]]


@pytest.mark.parametrize("recovery", ["an event", "full length"])
async def test_watches_that_work_again_are_logged_once_and_clear_the_error(
    tmp_path: Path, recovery: str
) -> None:
    time = FakeTime()
    with capture_logs() as logs:
        async with watching(tmp_path, time.timing()) as (server, source):
            with server.faults.replaying(error_line(500, "a fault"), matches=watches):
                server.end_watches()
                await until(lambda: server.list_count() > 3)
                assert "500" in source.error
            await until_watching(server, source)
            assert "500" in source.error, "a list that works is no watch that does"
            time.now += 60
            if recovery == "an event":
                put_one_of_each_kind(server)
            else:
                server.end_watches()
            await until(lambda: not source.error)
            assert source.age < 1
    again = [entry["kind"] for entry in logs if "being updated again" in entry["event"]]
    assert sorted(again) == ALL_KINDS


async def test_only_events_and_bookmarks_of_all_kinds_keep_an_open_watch_young(
    tmp_path: Path,
) -> None:
    time = FakeTime()
    async with watching(tmp_path, time.timing()) as (server, source):
        time.now += 40
        assert source.age == 40
        server.send_bookmarks()
        await until(lambda: source.age == 0)
        time.now += 10
        server.put_function("x")
        await until(lambda: names(source) == {"x"})
        assert source.age == 10, "that of the other kinds"
        put_one_of_each_kind(server)
        await until(lambda: source.age == 0)


async def test_a_quiet_watch_that_ends_early_every_time_is_followed_by_a_list_and_logged_once(
    tmp_path: Path,
) -> None:
    """Such as by a proxy that ends what is silent for twenty seconds."""
    time = FakeTime()
    with capture_logs() as logs:
        async with watching(tmp_path, time.timing(TIMING)) as (server, source):
            for number in range(2, 6):
                before = len(server.watch_versions())
                time.now += 20
                server.end_watches()
                await until_watching(server, source, after=before)
                assert server.list_count() == number
                assert source.age < 2
    assert set(time.slept) == {TIMING.first * 5 / 6}
    warned = [entry["kind"] for entry in logs if entry["log_level"] == "warning"]
    assert sorted(warned) == ALL_KINDS


@pytest.mark.parametrize("matches", [lists, watches])
async def test_a_server_that_is_overloaded_is_given_the_time_it_asks_for(
    tmp_path: Path, matches: Callable[[Request], bool]
) -> None:
    time = FakeTime(until=2000)
    async with MappingServer(tmp_path) as server:
        server.put_function("x")
        busy = server.faults.failing(
            429,
            retry_after=7,
            matches=lambda request: FUNCTIONS.plural in request.path and matches(request),
            count=4,
        )
        with busy:
            async with following(server, time.timing(QUICK, jitter=0.0)) as source:
                await until_watching(server, source)
                assert names(source) == {"x"}
    assert time.slept == [7.0] * 4
