"""API servers that are away, overloaded, or no longer know us: what serves on, how often we ask."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.kube.list_watch import WatchTimeouts
from services.mappings.source import Timing
from tests.faults.apiserver import FUNCTIONS, FaultyApiServer, lists, watches
from tests.services.kube.following import (
    USUAL,
    FakeTime,
    following,
    names,
    put_function,
    until,
    until_watching,
    until_watching_again,
    watched,
    watching,
)

pytestmark = pytest.mark.anyio

TEN_MINUTES = 600.0
ROTATED = "rotated"


async def test_a_server_that_is_away_for_minutes_is_asked_at_a_bounded_rate(tmp_path: Path) -> None:
    time = FakeTime()
    async with FaultyApiServer().running() as server:
        put_function(server, "x")
        with capture_logs() as logs:
            async with following(server, tmp_path, pace=USUAL, timing=time.timing()) as source:
                await until_watching(server, source)
                before = source.index
                time.slept.clear()
                time.until = time.now + TEN_MINUTES
                async with server.away():
                    await until(lambda: time.now >= time.until)
                    assert source.index is before
                    assert source.loaded
                    assert source.age > TEN_MINUTES / 3
                    assert "can't be reached" in source.error
    assert 10 < len(time.slept) < TEN_MINUTES / 30 * 2, "tries of two reflectors"
    told = [entry for entry in logs if entry["log_level"] == "warning"]
    assert sorted(entry["kind"] for entry in told) == ["acceleratorfunctions", "fpgaregions"]


async def test_a_server_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    server = FaultyApiServer()
    async with server.running():
        put_function(server, "x")
    async with following(server, tmp_path) as source:
        await until(lambda: "can't be reached" in source.error)
        assert not source.loaded
        async with server.running():
            await until(lambda: source.loaded)
            assert names(source) == {"x"}


@pytest.mark.parametrize("matches", [lists, watches])
async def test_a_server_that_is_overloaded_is_given_the_time_it_asks_for(
    tmp_path: Path, matches: object
) -> None:
    time = FakeTime(until=2000)
    async with FaultyApiServer().running() as server:
        put_function(server, "x")
        busy = server.answering(
            429,
            "too many requests",
            headers={"Retry-After": "7"},
            matches=lambda request: request.plural == FUNCTIONS and matches(request),  # type: ignore[operator]
            times=4,
        )
        with busy:
            async with following(server, tmp_path, timing=time.timing(jitter=0.0)) as source:
                await until_watching(server, source)
                assert names(source) == {"x"}
    assert time.slept == [7.0] * 4


async def test_pauses_begin_small_again_after_a_watch_that_held(tmp_path: Path) -> None:
    time = FakeTime(until=3000)
    async with watching(tmp_path, pace=USUAL, timing=time.timing(jitter=1.0)) as (server, source):
        for _ in range(4):
            before = len(watched(server))
            time.now += 50
            server.cut_watches()
            await until_watching_again(server, source, before)
    assert set(time.slept) == {WatchTimeouts().first}


async def test_a_server_that_has_moved_is_found_through_its_kubeconfig(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as old, FaultyApiServer().running() as new:
        put_function(new, "there")
        new.compact()
        async with following(old, tmp_path) as source:
            await until_watching(old, source)
            path = tmp_path / "kubeconfig"
            path.write_text(path.read_text().replace(old.url, new.url))
            await old.stop()
            await until(lambda: names(source) == {"there"})


async def test_what_a_kubeconfig_says_by_the_end_of_a_pause_counts(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    server, before = FaultyApiServer(), 0

    def refused() -> list[str]:
        return [
            request.plural
            for request in server.requests[before:]
            if server.token == ROTATED and request.headers["authorization"] != f"Bearer {ROTATED}"
        ]

    async def sleep(seconds: float) -> None:
        if refused():
            path.write_text(path.read_text().replace("secret", ROTATED))
        await asyncio.sleep(seconds)  # as the reflector wants it

    async with server.running(), following(server, tmp_path, timing=Timing(sleep=sleep)) as source:
        await until_watching(server, source)
        before = len(server.requests)
        server.token = ROTATED
        server.cut_watches()
        put_function(server, "x")
        await until(lambda: names(source) == {"x"})
        await until_watching(server, source)
    assert sorted(refused()) == sorted(set(refused())), "each kind was refused once at the most"


async def test_an_outage_with_many_faces_is_told_once_and_its_length_at_the_end(
    tmp_path: Path,
) -> None:
    async with FaultyApiServer().running() as server, following(server, tmp_path) as source:
        put_function(server, "x")
        await until_watching(server, source)
        with capture_logs() as logs:
            asked = len(server.requests)
            with server.answering(500):
                server.cut_watches()
                await until(lambda: len(server.requests) > asked + 4)
                with server.dropping():
                    await until(lambda: len(server.requests) > asked + 8)
            await until_watching(server, source)
            server.bookmark()
            await until(lambda: not source.error)
    told = [entry for entry in logs if entry["log_level"] == "warning"]
    ended = [entry for entry in logs if "being updated again" in entry["event"]]
    assert sorted(entry["kind"] for entry in told) == ["acceleratorfunctions", "fpgaregions"]
    assert sorted(entry["kind"] for entry in ended) == ["acceleratorfunctions", "fpgaregions"]
    assert all(entry["after"] >= 0 for entry in ended)
