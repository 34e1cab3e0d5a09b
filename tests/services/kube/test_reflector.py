"""Lists and watches of mappings over real sockets: pages, gaps, and what can't be understood."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.kube import client
from services.kube.lists import PAGE
from services.kube.watches import WatchTiming
from services.mappings.model import parse
from services.mappings.source import NO_DEFINITIONS
from simulator.apiserver.calls import StatusError
from simulator.apiserver.faults import lists, watches
from simulator.apiserver.http_server import Request, Response
from simulator.apiserver.reading import event_line
from simulator.apiserver.resources import ACCELERATORS, FUNCTIONS, REGIONS
from simulator.apiserver.store import encode
from tests.services.building import function
from tests.services.kube.following import (
    QUICK,
    STEADY_AT_ONCE,
    FakeTime,
    MappingServer,
    following,
    names,
    put_one_of_each_kind,
    recovered,
    until,
    until_watching,
    watching,
)


def objects(number: int, namespaces: int = 1) -> Iterator[tuple[str, bytes]]:
    for n in range(number):
        namespace, name = f"ns-{n % namespaces}", f"f-{n:06}"
        item = function(name, "region", afu=f"{n:032x}", namespace=namespace)
        yield f"{namespace}/{name}", encode(item)


def later_pages(request: Request) -> bool:
    return "continue" in request.query


async def test_thousands_of_mappings_are_read_in_pages_while_other_tasks_run(
    tmp_path: Path,
) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with MappingServer(tmp_path) as server:
        server.fill(objects(3000, namespaces=300))
        turning = asyncio.create_task(others())
        async with following(server) as source:
            await until(lambda: source.loaded)
            turning.cancel()
            assert len(source.index) == 3000
            assert len(source.index.namespaces) == 300
            assert turns > 30
            server.put_function("one-more", "ns-0")
            await until(lambda: "one-more" in source.index.namespace("ns-0").by_name)
    assert server.page_limits() == [str(PAGE)] * 6
    assert server.list_count() == 1


async def test_a_list_that_expires_between_its_pages_changes_nothing_and_starts_over(
    tmp_path: Path,
) -> None:
    time = FakeTime()
    async with MappingServer(tmp_path) as server:
        server.fill(objects(1200))
        async with following(server, time.timing(QUICK)) as source:
            await until_watching(server, source)
            before = source.index
            with server.faults.failing(410, matches=later_pages):
                async with server.away():
                    for number in range(1100):
                        server.drop("AcceleratorFunction", f"f-{number:06}", "ns-0")
                    server.fill(objects(2000, namespaces=2))
                    server.compact()
                time.now += 100
                await until(lambda: server.list_count() > 4)
                assert source.index is before
                assert source.age >= 100, "half a list is no list"
            await until(lambda: len(source.index) == 2000 + 50)
            assert source.age < 1


async def test_pages_that_are_too_long_are_requested_in_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_BODY", 50_000)
    async with MappingServer(tmp_path) as server:
        server.fill(objects(600))
        for name in ("a-large-one", "a-large-two"):
            item = function(name, "region", namespace="ns-0")
            server.put(item | {"more": "x" * 40_000})
        async with following(server) as source:
            await until(lambda: source.loaded)
            assert len(source.index) == 602
    limits = [int(limit) for limit in server.page_limits()]
    assert limits[:4] == [500, 62, 7, 1], "until it fits"
    assert max(limits[4:]) > 30, "and larger again afterwards"


async def test_a_list_without_end_is_given_up_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page has other objects and a new token."""
    monkeypatch.setattr("services.kube.lists.MAX_LIST", 300_000)
    pages = longest = 0

    def next_page(request: Request) -> Response:
        nonlocal pages, longest
        pages = pages + 1 if later_pages(request) else 1
        longest = max(longest, pages)
        items = [function(f"f-{pages}-{n}", "region", namespace="a") for n in range(20)]
        metadata = {"resourceVersion": "1", "continue": f"token-{pages}"}
        return Response(200, encode({"metadata": metadata, "items": items}))

    async with watching(tmp_path, STEADY_AT_ONCE) as (server, source):
        server.put_function("x")
        await until(lambda: names(source) == {"x"})
        with server.faults.answering(
            next_page, matches=lambda each: lists(each) and each.path.endswith(FUNCTIONS.plural)
        ):
            server.send_line(b"not JSON\n")
            await until(lambda: "too many bytes or objects" in source.error)
            assert 5 < longest < 20
            assert names(source) == {"x"}
        await until(lambda: recovered(server, source))


async def test_a_watch_ends_by_new_objects_without_end_and_not_by_changes_of_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.kube.reflector.MAX_LIST", 10_000)
    async with watching(tmp_path) as (server, source):
        for mode in ["af", "region"] * 15:
            server.put_function("x", mode=mode)
            server.put_function("y")
            server.drop("AcceleratorFunction", "y")
        server.put_function("last")
        await until(lambda: names(source) == {"x", "last"})
        assert server.list_count() == 1
        for number in range(10):
            server.put_function(f"new-{number}")
        await until(lambda: "too many bytes or objects" in source.error)


async def test_an_object_that_is_too_large_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.kube.reflector.MAX_OBJECT", 10_000)
    async with MappingServer(tmp_path) as server:
        server.put_function("x")
        large = function("large", "region", namespace="default") | {"more": "x" * 20_000}
        server.put(large)
        async with following(server) as source:
            await until(lambda: source.loaded)
            assert names(source) == {"x"}


async def test_without_the_definitions_there_are_no_objects_until_they_come(tmp_path: Path) -> None:
    async with MappingServer(tmp_path) as server:
        server.put_function("x")
        with capture_logs() as logs:
            absent = server.faults.failing(404, "404 page not found", matches=lists)
            async with following(server) as source:
                with absent:
                    await until(lambda: server.list_count() > 5)
                    assert (source.loaded, names(source)) == (True, set())
                    assert source.error == NO_DEFINITIONS
                await until(lambda: names(source) == {"x"})
                await until(lambda: source.error == "")
    told = [entry["kind"] for entry in logs if "does not know this kind" in entry["event"]]
    assert sorted(told) == [FUNCTIONS.plural, ACCELERATORS.plural, REGIONS.plural], "once each"
    assert [each["reason"] for each in logs if each["log_level"] == "warning"] == [NO_DEFINITIONS]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[" * 5000, "can't be read"),
        (b'{"metadata":{},"items":[]}', "has no resource version"),
        (b'{"metadata":{"resourceVersion":"5","continue":"again"},"items":[]}', "repeats a page"),
    ],
)
async def test_an_answer_that_is_no_list_changes_nothing(
    tmp_path: Path, body: bytes, text: str
) -> None:
    async with MappingServer(tmp_path) as server:
        server.put_function("x")
        async with following(server, STEADY_AT_ONCE) as source:
            await until_watching(server, source)
            with server.faults.answering(lambda _: Response(200, body), matches=lists):
                server.compact()
                server.cut_watches()
                await until(lambda: text in source.error)
                assert names(source) == {"x"}
            await until_watching(server, source)
            await until(lambda: recovered(server, source))


async def test_an_object_with_a_bottomless_field_hides_no_other(tmp_path: Path) -> None:
    """An API server stores fields that are nested deeper than a decoder follows."""
    deep = b'"managedFields": [{"fieldsV1": %s1%s}], "name"' % (b'{"f:]\\"":' * 9000, b"}" * 9000)

    def deep_function(name: str) -> bytes:
        plain = encode(function(name, "region", namespace="default"))
        assert b'"name"' in plain
        return plain.replace(b'"name"', deep)

    async with MappingServer(tmp_path) as server:
        server.put_function("plain")
        server.fill([("default/odd", deep_function("odd"))])
        async with following(server) as source:
            await until_watching(server, source)
            assert names(source) == {"odd", "plain"}
            server.send_line(event_line("ADDED", deep_function("later")))
            await until(lambda: names(source) == {"later", "odd", "plain"})
            assert server.list_count() == 1


async def test_an_internal_error_is_logged_and_followed_by_a_new_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 3

    def mistaken(obj: object) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise ZeroDivisionError
        return parse(obj)

    monkeypatch.setattr("services.mappings.source.parse", mistaken)
    time = FakeTime(until=2000)
    async with MappingServer(tmp_path) as server:
        server.put_function("x")
        with capture_logs() as logs:
            async with following(server, time.timing(QUICK)) as source:
                await until_watching(server, source)
                assert names(source) == {"x"}
    assert [entry["exc_info"] for entry in logs if "internal error" in entry["event"]] == [True] * 3
    assert server.list_count() == 4
    assert len(time.slept) == 3
    assert min(time.slept) > 0


async def test_a_watch_that_ends_on_time_is_continued_at_once_from_its_last_bookmark(
    tmp_path: Path,
) -> None:
    time = FakeTime()
    async with watching(tmp_path, time.timing()) as (server, source):
        for _ in range(3):
            before = len(server.watch_versions())
            time.now += 50
            server.compact()
            server.send_bookmarks()
            server.end_watches()
            await until_watching(server, source, after=before)
            assert server.watch_versions()[-1] == str(server.store.revision)
            server.put_region(f"r{before}")
    assert set(time.slept) == {0.0}
    assert server.list_count() == 1
    requested = [seen.request for seen in server.seen if seen.request.is_watch]
    assert {45 <= int(each.query["timeoutSeconds"]) <= 60 for each in requested} == {True}


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON\n",
        b'{"type":"ADDED","object":{"metadata":{"name":7}}}\n',
        b'{"type":"BOOKMARK","object":{"metadata":{}}}\n',
        b'{"type":"ERROR","object":{"code":"many"}}\n',
        b'{"type":"RENAMED","object":{}}\n',
    ],
)
async def test_a_line_that_can_not_be_understood_is_followed_by_a_list(
    tmp_path: Path, line: bytes
) -> None:
    async with watching(tmp_path) as (server, source):
        server.send_line(line)
        server.put_function("x")
        await until(lambda: server.list_count() == 2)
        await until(lambda: names(source) == {"x"})


# Watches that don't work while lists do; pauses pass in simulated time


TIMING = WatchTiming(watch=30.0)
"""The webhook's, but for `--max-staleness`."""
ALL_KINDS = [FUNCTIONS.plural, ACCELERATORS.plural, REGIONS.plural]


async def test_a_watch_that_never_ends_is_cut_counted_logged_once_and_followed_by_a_list(
    tmp_path: Path,
) -> None:
    async def stream() -> AsyncGenerator[bytes]:
        yield b'{"type":"BOOKMARK","object":{"kind":"'
        while True:
            await asyncio.sleep(0.05)  # the moment between two bytes
            yield b"x"

    timing = WatchTiming(first=0.01, longest=0.02, steady=0.5, watch=1.0, grace=0.1)
    async with MappingServer(tmp_path) as server:
        server.put_function("deleted")
        hanging = server.faults.answering(lambda _: Response(200, stream=stream()), matches=watches)
        with hanging, capture_logs() as logs:
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
            fault = event_line("ERROR", encode(StatusError(500, "a fault").status()))
            with server.faults.answering(lambda _: Response(200, fault), matches=watches):
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
