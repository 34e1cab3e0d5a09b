"""Lists over real sockets: pages, their size, their expiry, and servers that have nothing."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.kube import client
from services.kube.client import PAGE
from services.mappings.model import parse
from tests.faults.apiserver import (
    FUNCTIONS,
    REGIONS,
    FaultyApiServer,
    encode,
    event,
    later_pages,
    lists,
)
from tests.services.kube.following import (
    ARRIA,
    NLB0,
    FakeTime,
    following,
    listed,
    names,
    put_function,
    until,
    until_watching,
)

pytestmark = pytest.mark.anyio


def objects(number: int, namespaces: int = 1) -> Iterator[tuple[tuple[str, str], bytes]]:
    for n in range(number):
        key = f"ns-{n % namespaces}", f"f-{n:06}"
        spec = {"interfaceId": ARRIA, "afuId": f"{n:032x}", "mode": "region"}
        yield key, encode(FUNCTIONS, *key, 1, spec)


def fill(server: FaultyApiServer, number: int, namespaces: int = 1) -> None:
    server.fill(FUNCTIONS, objects(number, namespaces))


def limits(server: FaultyApiServer) -> list[int]:
    return [
        int(request.query["limit"])
        for request in server.requests
        if request.plural == FUNCTIONS and not request.is_watch
    ]


async def test_lists_are_read_in_pages(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        fill(server, 1200)
        async with following(server, tmp_path) as source:
            await until(lambda: source.loaded)
            assert len(source.index) == 1200
    assert limits(server) == [PAGE, PAGE, PAGE]
    assert listed(server) == 1


@pytest.mark.parametrize("namespaces", [1, 1000])
async def test_ten_thousand_mappings_are_taken_in_with_others_getting_their_turn(
    tmp_path: Path, namespaces: int
) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with FaultyApiServer().running() as server:
        fill(server, 10_000, namespaces)
        turning = asyncio.create_task(others())
        async with following(server, tmp_path) as source:
            await until(lambda: source.loaded, timeout=100)
            turning.cancel()
            assert len(source.index) == 10_000
            assert len(source.index.namespaces) == namespaces
            assert turns > 100
            put_function(server, "one-more", "ns-0")
            await until(lambda: "one-more" in source.index.namespace("ns-0").by_name)


async def test_a_list_that_expires_between_its_pages_is_begun_anew(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        fill(server, 1200)
        expired = server.answering(
            410, "the provided continue parameter is too old", times=2, matches=later_pages
        )
        with expired:
            async with following(server, tmp_path) as source:
                await until(lambda: source.loaded)
                assert len(source.index) == 1200
    assert listed(server) == 3


async def test_what_serves_stays_whole_while_a_list_is_read(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        fill(server, 1200)
        async with following(server, tmp_path) as source:
            await until_watching(server, source)
            before = source.index
            with server.answering(410, "expired", matches=later_pages):
                async with server.away():
                    for number in range(1100):
                        server.delete(FUNCTIONS, "ns-0", f"f-{number:06}")
                    fill(server, 2000, namespaces=2)
                    server.compact()
                await until(lambda: listed(server) > 4)
                assert source.index is before
            await until(lambda: len(source.index) == 2000 + 50)


async def test_a_page_that_fails_is_asked_for_again_without_the_ones_before(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        fill(server, 1200)
        with (
            server.answering(500, "etcd", times=3, matches=later_pages),
            server.dropping(times=2, matches=later_pages),
        ):
            async with following(server, tmp_path) as source:
                await until(lambda: source.loaded)
                assert len(source.index) == 1200
    assert listed(server) == 1


async def test_a_page_that_fails_too_often_has_the_list_begun_anew(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        fill(server, 1200)
        with server.answering(500, "etcd", times=10, matches=later_pages):
            async with following(server, tmp_path) as source:
                await until(lambda: source.loaded)
                assert len(source.index) == 1200
    assert listed(server) == 2


async def test_credentials_may_change_between_the_pages_of_a_list(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        fill(server, 1200)
        with contextlib.ExitStack() as faults:
            faults.enter_context(server.answering(500, "etcd", matches=later_pages))
            async with following(server, tmp_path) as source:
                await until(lambda: "etcd" in source.error)
                server.token = "rotated"  # noqa: S105 - of this server only
                path = tmp_path / "kubeconfig"
                path.write_text(path.read_text().replace("secret", "rotated"))
                faults.close()
                await until(lambda: source.loaded)
                assert len(source.index) == 1200


async def test_a_page_that_is_too_long_is_asked_for_in_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_BODY", 50_000)
    async with FaultyApiServer().running() as server:
        fill(server, 600)
        large = {"interfaceId": ARRIA, "afuId": NLB0, "mode": "region", "more": "x" * 40_000}
        for name in ("a-large-one", "a-large-two"):
            server.put(FUNCTIONS, "ns-0", name, **large)
        async with following(server, tmp_path) as source:
            await until(lambda: source.loaded)
            assert len(source.index) == 602
    asked = limits(server)
    assert asked[:4] == [500, 62, 7, 1], "until it fits"
    assert max(asked[4:]) > 30, "and larger again afterwards"


async def test_a_server_that_gives_no_pages_is_asked_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_BODY", 50_000)
    async with FaultyApiServer().running() as server:
        items = b",".join(data for _, data in objects(600))
        body = b'{"metadata":{"resourceVersion":"5"},"items":[%s]}' % items
        with server.replacing(body, matches=lambda request: request.plural == FUNCTIONS):
            async with following(server, tmp_path) as source:
                await until(lambda: source.loaded)
                assert len(source.index) == 600


async def test_a_single_object_that_is_too_long_is_a_problem_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_BODY", 20_000)
    monkeypatch.setattr(client, "MAX_LIST", 50_000)
    async with FaultyApiServer().running() as server:
        server.put(FUNCTIONS, "default", "x", more="x" * 60_000)
        async with following(server, tmp_path) as source:
            await until(lambda: "longer than 50000 bytes" in source.error)
            server.delete(FUNCTIONS, "default", "x")
            await until(lambda: source.loaded)


async def test_without_the_definitions_it_says_so_and_waits_for_them(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        put_function(server, "x")
        with capture_logs() as logs:
            absent = server.answering(404, "404 page not found", matches=lists)
            async with following(server, tmp_path) as source:
                with absent:
                    await until(lambda: listed(server) > 5)
                    assert not source.loaded
                    assert "install the custom resource definitions" in source.error
                await until(lambda: source.loaded)
                assert names(source) == {"x"}
                await until(lambda: source.error == "")
    told = [entry for entry in logs if entry["log_level"] == "warning"]
    assert sorted(entry["kind"] for entry in told) == [FUNCTIONS, REGIONS], "once each"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<html>", "is not a list"),
        (b"[" * 5000, "is not a list"),
        (b'{"metadata":{}}', "has no resource version"),
    ],
)
async def test_what_is_no_list_is_not_taken_for_an_empty_one(
    tmp_path: Path, body: bytes, text: str
) -> None:
    async with FaultyApiServer().running() as server:
        put_function(server, "x")
        async with following(server, tmp_path) as source:
            await until_watching(server, source)
            with server.replacing(body):
                server.compact()
                server.cut_watches()
                await until(lambda: text in source.error)
                assert names(source) == {"x"}
            await until_watching(server, source)
            server.bookmark()
            await until(lambda: source.error == "")


async def test_an_object_with_a_bottomless_field_hides_no_other(tmp_path: Path) -> None:
    """An API server stores fields that are nested deeper than a decoder follows."""
    deep = b'"managedFields": [{"fieldsV1": %s1%s}], "uid"' % (b'{"f:]\\"":' * 9000, b"}" * 9000)

    def deep_function(name: str) -> bytes:
        spec = {"interfaceId": ARRIA, "afuId": NLB0, "mode": "region"}
        plain = encode(FUNCTIONS, "default", name, 1, spec)
        assert b'"uid"' in plain
        return plain.replace(b'"uid"', deep)

    async with FaultyApiServer().running() as server:
        put_function(server, "plain")
        server.fill(FUNCTIONS, [(("default", "odd"), deep_function("odd"))])
        async with following(server, tmp_path) as source:
            await until_watching(server, source)
            assert names(source) == {"odd", "plain"}
            server.send_line(FUNCTIONS, event("ADDED", deep_function("later")))
            await until(lambda: names(source) == {"later", "odd", "plain"})
            assert listed(server) == 1


async def test_a_list_that_goes_round_in_circles_is_none(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        circle = b'{"metadata":{"resourceVersion":"5","continue":"again"},"items":[]}'
        async with following(server, tmp_path) as source:
            with server.replacing(circle):
                await until(lambda: "repeats a page" in source.error)
                assert not source.loaded
            await until(lambda: source.loaded)


async def test_a_list_without_items_is_an_empty_one(tmp_path: Path) -> None:
    body = b'{"metadata":{"resourceVersion":"5"},"items":null}'
    async with FaultyApiServer().running() as server:
        with server.replacing(body):
            async with following(server, tmp_path) as source:
                await until(lambda: source.loaded)
                assert len(source.index) == 0


async def test_a_mistake_of_ours_is_logged_and_followed_by_a_new_list(
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
    async with FaultyApiServer().running() as server:
        put_function(server, "x")
        with capture_logs() as logs:
            async with following(server, tmp_path, timing=time.timing()) as source:
                await until_watching(server, source)
                assert names(source) == {"x"}
    assert [entry["exc_info"] for entry in logs if "internal error" in entry["event"]] == [True] * 3
    assert listed(server) == 4
    assert len(time.slept) == 3
    assert min(time.slept) > 0
