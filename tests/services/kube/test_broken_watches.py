"""Watches that don't work while lists do: how old mappings get, how often is asked, what is said.

Pauses pass in simulated time, over real sockets.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import pytest
from structlog.testing import capture_logs

from services.kube.list_watch import WatchTimeouts
from simulator.apiserver.http_server import Cut, Response
from tests.faults.apiserver import (
    FUNCTIONS,
    Answer,
    FaultyApiServer,
    Request,
    encode,
    event,
    status,
    watches,
)
from tests.services.kube.following import (
    ARRIA,
    NLB0,
    USUAL,
    FakeTime,
    SimulatedTime,
    following,
    listed,
    names,
    put_function,
    put_region,
    until,
    until_watching,
    until_watching_again,
    watched,
)

pytestmark = pytest.mark.anyio

PACE = WatchTimeouts(watch=30.0)
"""The webhook's, but for `--max-staleness`."""
MINUTE = 60.0
MOST = 16
"""Requests in a minute of broken watches."""

Break: TypeAlias = Callable[[FaultyApiServer, SimulatedTime], AbstractContextManager[None]]


def saying(line: bytes) -> Break:
    return lambda server, _time: server.saying(line)


def an_error(code: int, text: str) -> Break:
    return saying(event("ERROR", status(code, text)))


def ending(seconds: float, *lines: bytes, cut: bool = False) -> Break:
    """Each watch lasts so long, tells these lines, and ends or is cut."""

    def broken(server: FaultyApiServer, time: SimulatedTime) -> AbstractContextManager[None]:
        async def stream() -> AsyncGenerator[bytes]:
            for line in lines:
                yield line
            await time.sleep(seconds)  # simulated
            if cut:
                raise Cut

        return server.answering_with(lambda: Response(200, stream=stream()), matches=watches)

    return broken


def refusing(code: int) -> Break:
    return lambda server, _time: server.answering(code, "not now", matches=watches)


def dropping(server: FaultyApiServer, _time: SimulatedTime) -> AbstractContextManager[None]:
    return server.dropping(matches=watches)


ODD = event("MODIFIED", encode("acceleratorfunctions", "other", "x", 1, {"afuId": NLB0}))
BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2"}}}\n'

BROKEN = {
    "ERROR 500": an_error(500, "storage is (re)initializing"),
    "ERROR 504": an_error(504, "Too large resource version"),
    "ERROR 410": an_error(410, "too old resource version"),
    "ERROR without a code": saying(event("ERROR", b"{}")),
    "an event, then ERROR": ending(0.1, ODD, event("ERROR", status(500, "no progress"))),
    "a line that can't be read": saying(b"garbled\n"),
    "half a line": saying(b'{"type":"ADD'),
    "an end at once": ending(0.0),
    "an end after 2 s": ending(2.0),
    "a cut at once": ending(0.0, cut=True),
    "a cut after 2 s": ending(2.0, cut=True),
    "HTTP 403": refusing(403),
    "HTTP 410": refusing(410),
    "HTTP 429": refusing(429),
    "HTTP 500": refusing(500),
    "no answer": dropping,
}


@pytest.mark.parametrize("jitter", [0.0, 1.0])
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_minute_of_broken_watches_is_cheap_said_once_and_mappings_stay_fresh(
    tmp_path: Path, broken: Break, jitter: float
) -> None:
    """From the start on, which is when pauses are shortest."""
    time = SimulatedTime(2, 4 * MINUTE, jitter)
    minutes = [0, 0, 0, 0]
    ages: list[float] = []

    def noted(_request: Request) -> bool:
        """Counts each request, and matches none."""
        minutes[int(time.now // MINUTE)] += 1
        ages.append(source.age if time.now else 0.0)
        return False

    async with FaultyApiServer().running() as server:
        put_function(server, "kept")
        put_region(server, "region")
        with (
            capture_logs() as logs,
            broken(server, time),
            server.answering(500, matches=noted),
        ):
            async with following(server, tmp_path, pace=PACE, timing=time.timing()) as source:
                await asyncio.wait_for(time.over.wait(), 60)
                await until(lambda: names(source) >= {"kept", "region"})
                assert sum(source.watch_failures.values()) >= 6
    assert max(minutes) <= MOST, minutes
    assert max(ages) <= MINUTE
    told = [
        entry["kind"]
        for entry in logs
        if "not being updated" in entry["event"] and entry["log_level"] == "warning"
    ]
    assert sorted(told) == ["acceleratorfunctions", "fpgaregions"]


@pytest.mark.parametrize(
    "broken", [an_error(500, "storage is (re)initializing"), ending(0.0)], ids=["error", "end"]
)
async def test_a_mapping_that_is_deleted_while_watches_are_broken_is_gone_within_a_minute(
    tmp_path: Path, broken: Break
) -> None:
    time = SimulatedTime(2, 10 * MINUTE, 1.0)
    async with FaultyApiServer().running() as server:
        put_function(server, "deleted")
        with broken(server, time):
            async with following(server, tmp_path, pace=PACE, timing=time.timing()) as source:
                await until(lambda: time.now > 5 * MINUTE or time.over.is_set())
                began = time.now
                server.delete(FUNCTIONS, "default", "deleted")
                time.until = began + MINUTE
                await until(time.over.is_set)
                await until(lambda: names(source) == set())


async def no_head() -> Response:
    """Nothing, not even the head of an answer."""
    await asyncio.Event().wait()
    return Response(200)


def repeating(begin: bytes, piece: bytes) -> Callable[[], Response]:
    """A beginning, and then the same again and again; nothing but a head without a piece."""

    async def stream() -> AsyncGenerator[bytes]:
        yield begin
        while piece:
            await asyncio.sleep(0.05)  # the moment between two bytes
            yield piece
        await asyncio.Event().wait()

    return lambda: Response(200, stream=stream())


HANGS: dict[str, Answer] = {
    "no head": no_head,
    "silence": repeating(b"", b""),
    "blank lines": repeating(b"\n", b"\n"),
    "an endless line": repeating(b'{"type":"BOOKMARK","object":{"kind":"', b"x"),
}


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
async def test_a_watch_that_never_ends_is_cut_counted_said_once_and_followed_by_a_list(
    tmp_path: Path, hang: Answer
) -> None:
    pace = WatchTimeouts(first=0.01, longest=0.02, steady=0.5, watch=1.0, grace=0.1)
    async with FaultyApiServer().running() as server:
        put_function(server, "deleted")
        with server.answering_with(hang, matches=watches), capture_logs() as logs:
            async with following(server, tmp_path, pace=pace) as source:
                await until(lambda: names(source) == {"deleted"})
                server.delete(FUNCTIONS, "default", "deleted")
                await until(lambda: names(source) == set())
                await until(lambda: min(source.watch_failures.values()) >= 2)
    warned = [entry["kind"] for entry in logs if entry["log_level"] == "warning"]
    assert sorted(warned) == ["acceleratorfunctions", "fpgaregions"]
    assert not [entry for entry in logs if "being updated again" in entry["event"]]


async def test_watches_that_work_again_are_said_once_and_clear_the_problem(tmp_path: Path) -> None:
    time = FakeTime()
    async with FaultyApiServer().running() as server:
        with capture_logs() as logs:
            async with following(server, tmp_path, pace=USUAL, timing=time.timing()) as source:
                await until_watching(server, source)
                with server.saying(event("ERROR", status(500, "etcd"))):
                    server.end_watches()
                    await until(lambda: listed(server) > 3)
                    assert "500" in source.error
                await until_watching(server, source)
                assert "500" in source.error, "a list that works is no watch that does"
                put_function(server, "x")
                put_region(server, "y")
                await until(lambda: names(source) == {"x", "y"})
                await until(lambda: not source.error)
    again = [entry["kind"] for entry in logs if "being updated again" in entry["event"]]
    assert sorted(again) == ["acceleratorfunctions", "fpgaregions"]


async def test_a_quiet_watch_of_full_length_is_recovery_too(tmp_path: Path) -> None:
    time = FakeTime()
    async with (
        FaultyApiServer().running() as server,
        following(server, tmp_path, pace=USUAL, timing=time.timing()) as source,
    ):
        with server.saying(event("ERROR", status(500, "etcd"))):
            await until(lambda: "500" in source.error)
        await until_watching(server, source)
        before = len(watched(server))
        time.now += 60
        server.end_watches()
        await until_watching_again(server, source, before)
        await until(lambda: not source.error)
        assert source.age < 1


async def test_an_open_watch_that_says_nothing_does_not_make_mappings_younger(
    tmp_path: Path,
) -> None:
    time = FakeTime()
    async with FaultyApiServer().running() as server:
        put_function(server, "x")
        async with following(server, tmp_path, pace=USUAL, timing=time.timing()) as source:
            await until_watching(server, source)
            time.now += 40
            assert source.age == 40
            server.bookmark()
            await until(lambda: source.age == 0)
            time.now += 10
            server.put(FUNCTIONS, "default", "x", interfaceId=ARRIA, afuId=NLB0, mode="af")
            put_region(server, "y")
            await until(lambda: source.age == 0)


async def test_a_list_that_never_gets_whole_does_not_make_mappings_younger(tmp_path: Path) -> None:
    time = FakeTime()
    async with FaultyApiServer().running() as server:
        for number in range(501):
            put_function(server, f"x{number}")
        with server.dropping(matches=lambda request: request.is_later_page):
            async with following(server, tmp_path, pace=USUAL, timing=time.timing()) as source:
                began = time.now
                await until(lambda: time.now > began + 300)
                assert source.age > 290


async def test_a_quiet_watch_that_ends_early_every_time_is_followed_by_a_list_and_said_once(
    tmp_path: Path,
) -> None:
    """Such as by a proxy that ends what is silent for twenty seconds."""
    time = FakeTime()
    async with FaultyApiServer().running() as server:
        with capture_logs() as logs:
            async with following(server, tmp_path, pace=PACE, timing=time.timing()) as source:
                await until_watching(server, source)
                for number in range(2, 6):
                    before = len(watched(server))
                    time.now += 20
                    server.end_watches()
                    await until_watching_again(server, source, before)
                    assert listed(server) == number
                    assert source.age < 2
    assert set(time.slept) == {PACE.first * 5 / 6}
    warned = [entry["kind"] for entry in logs if entry["log_level"] == "warning"]
    assert sorted(warned) == ["acceleratorfunctions", "fpgaregions"]
