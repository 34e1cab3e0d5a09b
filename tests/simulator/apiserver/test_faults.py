"""The faults that clients must survive, as clients see them."""

import asyncio
import contextlib

import httpx2
import pytest

from simulator.apiserver import faults
from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import CRS, client_of, function, watching

pytestmark = pytest.mark.anyio
ALL = f"{CRS}/acceleratorfunctions"


async def test_a_burst_of_errors_ends_after_its_count(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    with api.faults.failing(429, count=2, retry_after=1, matches=faults.lists):
        codes = [(await http.get(ALL)).status_code for _ in range(3)]
        answer = await http.post(ALL, json={})
    assert codes == [429, 429, 200]
    assert answer.status_code == 405
    assert [one.code for one in api.seen] == [429, 429, 200, 405]


async def test_watches_can_end_at_once_every_time(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    api.faults.watches_end_at_once = True
    for _ in range(3):
        async with watching(http, ALL, resourceVersion=str(api.store.revision)) as lines:
            assert await lines.rest() == b""
    assert len(api.seen) == 3


async def test_a_watch_can_be_cut_in_the_middle_of_a_line(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    async with watching(http, ALL, resourceVersion=str(api.store.revision)) as lines:
        api.put(function("whole"))
        assert (await lines.event())["object"]["metadata"]["name"] == "whole"
        api.cut_watches()
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            await lines.rest()
    assert lines.unread.startswith(b'{"type":"BOOKMARK"')
    assert b"\n" not in lines.unread


async def test_a_silent_watch_stays_open_and_says_nothing(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    query = {"resourceVersion": str(api.store.revision), "allowWatchBookmarks": "true"}
    async with watching(http, ALL, **query) as lines:
        await lines.event()
        api.silence_watches()
        api.put(function("unheard"))
        heard = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                while True:
                    heard.append((await lines.event())["type"])
        assert set(heard) <= {"BOOKMARK"}
        assert len(heard) < 3
        assert api.connections == 1


async def test_a_server_that_is_away_refuses_and_comes_back_on_its_port(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    api.put(function("before"))
    port = api.port
    async with api.away():
        with pytest.raises(httpx2.ConnectError):
            await http.get(ALL)
    assert api.port == port
    assert len((await http.get(ALL)).json()["items"]) == 1


async def test_a_changed_token_locks_out_the_old_one(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    new = api.change_token()
    assert (await http.get(ALL)).status_code == 401
    async with client_of(api, new) as renewed:
        assert (await renewed.get(ALL)).status_code == 200


async def test_a_crash_inside_is_a_500_with_its_reason(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("simulator.apiserver.reading.read_list", crash)
    answer = await http.get(ALL)
    assert answer.status_code == 500
    assert "ZeroDivisionError('oh')" in answer.json()["message"]
