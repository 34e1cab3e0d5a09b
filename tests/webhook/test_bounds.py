"""What one client may do and what not, as a server over TLS shows it."""

import asyncio
import contextlib
import gc
import json
import resource
import socket
import struct
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support import eventually, eventually_async
from tests.webhook.asgi import Bench
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, patch_of
from tests.webhook.running import HEADERS
from tests.webhook.test_server import client_context, connect, ended, head, port_of, serving
from webhook import limits
from webhook.limits import UNCOUNTED

START = b"POST /mutate HTTP/1.1\r\nHost: x\r\n"
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 9
MEBIBYTE = 1024 * 1024


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, header: bytes = b""
) -> bytes:
    """Make a review; return the head of the answer."""
    content = body()
    writer.write(head(len(content)).replace(b"Host", header + b"Host") + content)
    return await read_answer(reader)


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """Read one answer; return its head."""
    found = await reader.readuntil(b"\r\n\r\n")
    length = int(found.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return found


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        pytest.param(START + b"X-Header: " + b"a" * 9_000 + b"\r\n", b"", id="a long header"),
        pytest.param(START + b"a:\r\n" * 300 + b"\r\n", b"", id="many empty headers"),
        pytest.param(b"POST /mutate?" + b"a" * 100_000, b"", id="a request line without end"),
        pytest.param(b"\x00" * 100_000, b"", id="no HTTP"),
        pytest.param(b"POST\r\n\r\n", b"HTTP/1.1 400 ", id="half a request line"),
        pytest.param(
            START
            + b"Content-Type: application/json\r\n"
            + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            b"HTTP/1.1 411 ",
            id="chunks",
        ),
    ],
)
async def test_a_malformed_or_unbounded_request_ends_its_connection(
    tmp_path: Path, sent: bytes, answer: bytes
) -> None:
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        writer.write(sent)
        found = b""
        with contextlib.suppress(ConnectionError):
            found = await asyncio.wait_for(reader.read(), 60)
        assert found[:13] == answer
        await eventually_async(lambda: not server.opened)


@pytest.mark.parametrize("piece", [1, 7, 100_000])
async def test_requests_are_answered_in_turn_however_their_bytes_arrive(
    tmp_path: Path, piece: int
) -> None:
    request = head(len(body())) + body()
    sent = b"\r\n" + request + b"\r\n\r\n" + b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n" + request
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        for at in range(0, len(sent), piece):
            writer.write(sent[at : at + piece])
            await asyncio.sleep(0)
        for status in (b"200", b"404", b"200"):
            assert (await read_answer(reader)).startswith(b"HTTP/1.1 " + status)
        writer.transport.abort()


async def test_more_requests_than_may_wait_end_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAIT_SECONDS", 600)  # not the time that ends it

    async def hang(_scope: object, _receive: object, _send: object) -> None:
        await asyncio.Event().wait()

    async with serving(tmp_path, hang) as server:
        server.config.timeout_graceful_shutdown = 1
        reader, writer = await connect(server)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 10_000)
        assert await ended(reader)


async def test_stalled_requests_are_closed_and_idle_connections_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAIT_SECONDS", 0.3)
    begun = [b"", b"\r\n", b"POST /mut", head(100) + b"{"]
    async with serving(tmp_path, Bench().app) as server:
        kept = await connect(server)
        assert (await ask(*kept)).startswith(b"HTTP/1.1 200")
        kept[1].write(b"\r\n")
        slow = [await connect(server) for _ in begun]
        for (_, writer), sent in zip(slow, begun, strict=True):
            writer.write(sent)
        assert [await ended(reader) for reader, _ in slow] == [True] * len(begun)
        await eventually_async(lambda: len(server.opened) == 1)
        assert (await ask(*kept)).startswith(b"HTTP/1.1 200")
        kept[1].transport.abort()


async def test_empty_lines_give_a_client_no_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAIT_SECONDS", 0.3)
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        closed = asyncio.create_task(ended(reader))
        async with asyncio.timeout(60):
            while not closed.done():
                writer.write(b"\r\n")
                await asyncio.wait([closed], timeout=0.05)
        assert await closed


async def test_a_request_that_is_refused_before_its_end_ends_its_connection(tmp_path: Path) -> None:
    async with serving(tmp_path, Bench(max_body=10).app) as server:
        reader, writer = await connect(server)
        writer.write(head(20) + b" " * 10)
        answer = await asyncio.wait_for(reader.read(), 60)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in answer


async def test_large_bodies_leave_room_for_small_reviews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_HELD", 2 * MEBIBYTE)
    bench = Bench(max_body=3 * MEBIBYTE)
    async with serving(tmp_path, bench.app) as server:
        large = head(MEBIBYTE + UNCOUNTED) + b" "
        begun = [await connect(server) for _ in range(2)]
        for _, writer in begun:
            writer.write(large)
        await eventually_async(lambda: server.app.held == 2 * MEBIBYTE)
        reader, writer = await connect(server)
        writer.write(large)
        answer, _, content = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"connection: close" in answer
        assert json.loads(content)["message"] == "too many large requests at once"
        assert bench.figures.requests[("mutate", "rejected", "overloaded")] == 1
        client = await connect(server)
        assert (await ask(*client)).startswith(b"HTTP/1.1 200")
        for _, writer in [*begun, client]:
            writer.transport.abort()
        await eventually_async(lambda: server.app.held == 0)


async def test_connections_beyond_the_limit_are_refused_and_the_others_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST", 3)
    async with serving(tmp_path, Bench().app) as server:
        kept = [await connect(server) for _ in range(3)]
        await eventually_async(lambda: len(server.opened) == 3)
        reader, _ = await connect(server)
        assert await ended(reader)
        for each in kept:
            assert (await ask(*each)).startswith(b"HTTP/1.1 200")
        kept[0][1].transport.abort()
        await eventually_async(lambda: len(server.opened) == 2)
        fresh = await connect(server)
        assert (await ask(*fresh)).startswith(b"HTTP/1.1 200")
        for _, writer in [*kept, fresh]:
            writer.transport.abort()


MUCH = 8 * MEBIBYTE


async def much(_scope: object, _receive: object, send: Callable[..., Awaitable[None]]) -> None:
    """Answer with more than sockets hold."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b" " * MUCH, "more_body": False})


async def test_an_unread_answer_counts_until_it_is_given_up_and_one_without_room_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAIT_SECONDS", 1)
    monkeypatch.setattr(limits, "MOST_HELD", MUCH)
    async with serving(tmp_path, much) as server:
        _, unread = await connect(server)
        assert isinstance(unread.transport, asyncio.Transport)
        unread.transport.pause_reading()
        unread.write(head(0))
        await eventually_async(lambda: server.app.held == MUCH - UNCOUNTED)
        reader, writer = await connect(server)
        writer.write(head(0))
        assert b" " * 100 not in await asyncio.wait_for(reader.read(), 60)
        await eventually_async(lambda: (len(server.opened), server.app.held) == (0, 0))
        unread.transport.abort()


async def test_nothing_is_left_of_a_connection_that_its_client_resets(tmp_path: Path) -> None:
    """A timer that kept it for 120 s would let anybody fill the memory."""
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        await ask(reader, writer)
        (opened,) = server.opened
        left = weakref.ref(opened)
        del opened
        linger = struct.pack("ii", 1, 0)  # makes the socket end with a reset
        connected = writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await eventually_async(lambda: gc.collect() >= 0 and left() is None, timeout=60)


async def test_a_client_that_does_not_finish_its_handshake_is_no_connection(tmp_path: Path) -> None:
    async with serving(tmp_path, Bench().app) as server:
        _, silent = await asyncio.open_connection("127.0.0.1", port_of(server))
        silent.write(HALF_A_HELLO)
        client = await connect(server)
        assert (await ask(*client)).startswith(b"HTTP/1.1 200")
        assert len(server.opened) == 1
        for writer in (silent, client[1]):
            writer.transport.abort()


def test_without_file_descriptors_established_connections_serve_and_new_ones_come_later(
    start: Starter,
) -> None:
    webhook = start()
    pid, context = webhook.process.pid, client_context()
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] <= 1024
    with contextlib.ExitStack() as flood:
        kept = flood.enter_context(contextlib.closing(webhook.connect()))
        kept.connect()
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (60, hard))
        for _ in range(100):
            silent = socket.create_connection(("127.0.0.1", webhook.port), timeout=60)
            flood.enter_context(silent)
        refused = flood.enter_context(socket.socket())
        refused.settimeout(60)
        refused.connect(("127.0.0.1", webhook.port))
        with pytest.raises(OSError):  # noqa: PT011 - EOF or a reset
            context.wrap_socket(refused)
        kept.request("POST", "/mutate", body(), HEADERS)
        assert patch_of(kept.getresponse().read())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, hard))
    assert eventually(lambda: patch_of(webhook.ask("/mutate", body())))
