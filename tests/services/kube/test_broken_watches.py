"""Watches that don't work while lists do: how old mappings get, what is logged.

Pauses pass in simulated time, over real sockets.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.kube.list_watch import WatchTiming
from simulator.apiserver.calls import StatusError
from simulator.apiserver.faults import lists, watches
from simulator.apiserver.http_server import Request, Response
from simulator.apiserver.reading import event_line
from simulator.apiserver.resources import ACCELERATORS, FUNCTIONS, REGIONS
from simulator.apiserver.store import encode
from tests.services.kube.following import (
    QUICK,
    FakeTime,
    MappingServer,
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
ALL_KINDS = [FUNCTIONS.plural, ACCELERATORS.plural, REGIONS.plural]


def error_line(code: int, text: str) -> bytes:
    return event_line("ERROR", encode(StatusError(code, text).status()))


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
