"""Watches over real sockets: how they end, what comes on them, and where they go on."""

from pathlib import Path

import pytest

from services.kube.list_watch import WatchTimeouts
from services.mappings.source import ApiServerSource
from tests.faults.apiserver import (
    FUNCTIONS,
    FaultyApiServer,
    Request,
    encode,
    event,
)
from tests.services.kube.following import (
    ARRIA,
    NLB0,
    USUAL,
    FakeTime,
    following,
    listed,
    mode_of,
    names,
    put_function,
    put_region,
    until,
    until_watching,
    until_watching_again,
    watched,
    watching,
)
from tests.support import require_shared

pytestmark = pytest.mark.anyio

RECORDED = ("recorded", "kube-apiserver-1.36")


def function_lists(request: Request) -> bool:
    return request.plural == FUNCTIONS and not request.is_watch


async def miss_something(server: FaultyApiServer, source: ApiServerSource) -> None:
    """What a source has to find out by a list: one object gone, one changed, one new."""
    put_function(server, "goes")
    put_function(server, "changes")
    put_region(server, "stays")
    await until(lambda: names(source) == {"goes", "changes", "stays"})
    async with server.away():
        server.delete(FUNCTIONS, "default", "goes")
        server.put(FUNCTIONS, "default", "changes", interfaceId=ARRIA, afuId=NLB0, mode="af")
        put_function(server, "comes")
        server.compact()


async def test_what_happened_while_the_watch_was_too_old_is_found_by_a_list(tmp_path: Path) -> None:
    async with watching(tmp_path) as (server, source):
        await miss_something(server, source)
        await until(lambda: names(source) == {"changes", "comes", "stays"})
        assert mode_of(source, "changes") == "af"
        assert listed(server) == 2


async def test_a_watch_that_was_cut_in_the_middle_of_a_line_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path) as (server, source):
        version = put_function(server, "x")
        await until(lambda: names(source) == {"x"})
        before = len(watched(server))
        server.cut_watches()
        await until_watching_again(server, source, before)
        assert watched(server)[-1] == str(version)
        put_function(server, "y")
        await until(lambda: names(source) == {"x", "y"})
        assert listed(server) == 1
        assert source.index.namespace("cut").by_name == {}


async def test_a_connection_that_falls_silent_is_given_up_for_a_list(tmp_path: Path) -> None:
    pace = WatchTimeouts(first=0.001, longest=0.01, watch=1.0, grace=0.05)
    async with (
        FaultyApiServer().running() as server,
        following(server, tmp_path, pace=pace) as source,
    ):
        await until_watching(server, source)
        server.silence_watches()
        put_function(server, "x")
        await until(lambda: names(source) == {"x"})
        assert listed(server) == 2


async def test_a_watch_that_ends_in_time_is_taken_up_at_once(tmp_path: Path) -> None:
    time = FakeTime()
    async with watching(tmp_path, pace=USUAL, timing=time.timing()) as (server, source):
        for _ in range(3):
            before = len(watched(server))
            time.now += 50
            server.end_watches()
            await until_watching_again(server, source, before)
    assert set(time.slept) == {0.0}
    assert listed(server) == 1
    asked = [int(each.query["timeoutSeconds"]) for each in server.requests if each.is_watch]
    assert {45 <= seconds <= 60 for seconds in asked} == {True}


async def test_watches_that_end_as_soon_as_they_are_open_are_asked_for_at_a_bounded_rate(
    tmp_path: Path,
) -> None:
    time = FakeTime(until=1600)
    async with FaultyApiServer().running() as server:
        with server.saying():
            async with following(server, tmp_path, pace=USUAL, timing=time.timing()):
                await until(lambda: time.now >= 1600)
                # The other reflector may have a list and no watch yet.
                await until(lambda: listed(server) == len(watched(server)), "a list after each")
    assert 20 < len(server.requests) < 600 / 30 * 2 * 2, "in 600 s, by two reflectors"


async def test_bookmarks_keep_a_quiet_watch_from_growing_old(tmp_path: Path) -> None:
    async with watching(tmp_path) as (server, source):
        server.compact()
        server.bookmark()
        server.end_watches()
        await until(lambda: watched(server)[-1] == str(server.revision))
        put_function(server, "x")
        await until(lambda: names(source) == {"x"})
        assert listed(server) == 1


async def test_lines_end_at_newlines_only(tmp_path: Path) -> None:
    async with watching(tmp_path) as (server, source):
        spec = {"interfaceId": ARRIA, "afuId": NLB0, "mode": "af", "note": "next"}
        odd = encode(FUNCTIONS, "default", "x", server.revision, spec)
        server.send_line(FUNCTIONS, event("ADDED", odd.replace(b"next", "\x85\u2028".encode())))
        await until(lambda: names(source) == {"x"})
        assert listed(server) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON\n",
        b'{"type":"ADDED","object":{"metadata":{"name":7}}}\n',
        b'{"type":"ADDED"}\n',
        b'{"type":"BOOKMARK","object":{"metadata":{}}}\n',
        b'{"type":"ERROR","object":{"code":"many"}}\n',
        b'{"type":"RENAMED","object":{}}\n',
        b"\xff\xfe\n",
    ],
)
async def test_what_can_not_be_understood_is_followed_by_a_list(
    tmp_path: Path, line: bytes
) -> None:
    async with watching(tmp_path) as (server, source):
        server.send_line(FUNCTIONS, line)
        put_function(server, "x")
        await until(lambda: listed(server) == 2)
        await until(lambda: names(source) == {"x"})
        await until(lambda: source.error == "")


async def test_a_real_servers_objects_and_events_are_understood(tmp_path: Path) -> None:
    folder = require_shared(*RECORDED)
    page = folder.joinpath("list-full.json").read_bytes()
    lines = folder.joinpath("watch-add-modify-delete-bookmark.jsonl").read_bytes().splitlines(True)
    async with FaultyApiServer().running() as server:
        with server.replacing(page, matches=function_lists):
            async with following(server, tmp_path) as source:
                await until_watching(server, source)
                recorded = {
                    "arria10.dcp1.0-nlb0-orchestrated",
                    "arria10.dcp1.0-nlb0-preprogrammed",
                    "arria10.dcp1.0-nlb3-orchestrated",
                }
                assert names(source) == recorded
                server.send_line(FUNCTIONS, lines[0])
                await until(lambda: names(source) == recorded | {"demo-nlb3"})
                assert mode_of(source, "demo-nlb3") == "af"
                server.send_line(FUNCTIONS, lines[1])
                await until(lambda: mode_of(source, "demo-nlb3") == "region")
                server.send_line(FUNCTIONS, b"".join(lines[2:]))
                await until(lambda: names(source) == recorded)
                server.end_watches()
                await until(lambda: watched(server)[-1] == "692")


async def test_a_real_servers_410_is_understood(tmp_path: Path) -> None:
    line = require_shared(*RECORDED, "watch-too-old-410.txt").read_bytes()
    async with watching(tmp_path) as (server, source):
        put_function(server, "x")
        server.send_line(FUNCTIONS, line.strip() + b"\n")
        await until(lambda: listed(server) == 2)
        await until(lambda: names(source) == {"x"})
