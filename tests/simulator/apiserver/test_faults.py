"""The faults that clients must survive, as clients see them."""

import asyncio
import contextlib
import ssl
import time
from pathlib import Path

import httpx2
import pytest

from simulator.apiserver import faults
from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.simulator.apiserver.support import CRS, client_of, function, watching
from tests.support import eventually_async

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


async def test_errors_last_as_long_as_their_block(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    with api.faults.failing(500):
        answer = await http.get(ALL)
        assert (answer.status_code, answer.json()["reason"]) == (500, "InternalError")
    assert (await http.get(ALL)).status_code == 200


async def test_retry_after_is_told(api: ApiServerStandIn, http: httpx2.AsyncClient) -> None:
    with api.faults.failing(429, retry_after=3):
        assert (await http.get(ALL)).headers["Retry-After"] == "3"


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


async def test_watches_can_be_ended_properly(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    async with watching(http, ALL, resourceVersion=str(api.store.revision)) as lines:
        await eventually_async(lambda: len(api.watches) == 1)
        api.end_watches()
        assert await lines.rest() == b""


async def test_too_old_can_be_an_http_status(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    api.compact()
    api.faults.gone_as_status = True
    answer = await http.get(ALL, params={"watch": "1", "resourceVersion": "1"})
    assert answer.status_code == 410
    assert answer.json()["reason"] == "Expired"


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


async def test_dropped_connections_are_noticed_at_once(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    async with watching(http, ALL, resourceVersion=str(api.store.revision)) as lines:
        api.drop_connections()
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            await lines.rest()
    await eventually_async(lambda: not api.watches)


async def test_answers_can_be_delayed(api: ApiServerStandIn, http: httpx2.AsyncClient) -> None:
    api.faults.delay = 0.2
    started = time.monotonic()
    await http.get(ALL)
    assert time.monotonic() - started >= 0.2


async def test_a_changed_token_locks_out_the_old_one(
    api: ApiServerStandIn, http: httpx2.AsyncClient
) -> None:
    new = api.change_token()
    assert (await http.get(ALL)).status_code == 401
    async with client_of(api, new) as renewed:
        assert (await renewed.get(ALL)).status_code == 200


async def test_the_kubeconfig_can_name_a_token_file(tmp_path: Path) -> None:
    file, first = tmp_path / "token", "one"
    async with ApiServerStandIn(tmp_path, Options(token_file=file, token=first)) as api:
        assert file.read_text() == first
        assert file.stat().st_mode & 0o777 == 0o600
        assert api.kubeconfig()["users"][0]["user"] == {"tokenFile": str(file)}
        api.change_token("two")
        assert file.read_text() == "two"


async def test_a_crash_inside_is_a_500_with_its_reason(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("simulator.apiserver.reading.read_list", crash)
    answer = await http.get(ALL)
    assert answer.status_code == 500
    assert "ZeroDivisionError('oh')" in answer.json()["message"]


@pytest.mark.parametrize(
    "data", [b"NONSENSE\r\n\r\n", b"\x16\x03\x01", b"GET / HTTP/1.1\r\nbad header\r\n\r\n"]
)
async def test_bytes_that_are_no_request_are_a_400(
    api: ApiServerStandIn, trusting: ssl.SSLContext, data: bytes
) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        api.port,
        ssl=trusting,
    )
    writer.write(data)
    assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    await writer.wait_closed()


async def test_pipelined_requests_are_answered_in_order(
    api: ApiServerStandIn, trusting: ssl.SSLContext
) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        api.port,
        ssl=trusting,
    )
    ask = b"GET /%s HTTP/1.1\r\nHost: x\r\n%s\r\n"
    close = b"Connection: close\r\n"
    writer.write(ask % (b"healthz", b"") + ask % (b"version", b"") + ask % (b"livez", close))
    text = await reader.read()
    assert [part[:3] for part in text.split(b"HTTP/1.1 ")[1:]] == [b"200", b"401", b"200"]
    writer.close()
    await writer.wait_closed()
