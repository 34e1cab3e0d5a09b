"""What one client may do and what not, as a server over TLS shows it."""

import asyncio
import contextlib
import errno
import gc
import socket
import struct
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from services.process.listening import listen
from tests.support import eventually_async
from tests.webhook.asgi import Bench
from tests.webhook.reviews import body
from tests.webhook.test_server import client_context, connect, ended, head, port_of, serving
from webhook.connections import MEBIBYTE, Connections, EvictionReason, Phase

pytestmark = pytest.mark.anyio

START = b"POST /mutate HTTP/1.1\r\nHost: x\r\n"
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 9


class Clock:
    """A clock that a test sets; the server checks times once a second of the real one."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, header: bytes = b""
) -> bytes:
    """Make a review; return the head of the answer."""
    content = body()
    writer.write(head(len(content)).replace(b"Host", header + b"Host") + content)
    found = await reader.readuntil(b"\r\n\r\n")
    length = int(found.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return found


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(START + b"X-Header: " + b"a" * 66_000 + b"\r\n", id="a long header"),
        pytest.param(START + b"a:\r\n" * 300, id="many empty headers"),
        pytest.param(b"POST /mutate?" + b"a" * 100_000, id="a request line without end"),
        pytest.param(
            START + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", id="chunks"
        ),
        pytest.param((START + b"Content-Length: 2\r\n\r\n{}") * 2, id="a second request at once"),
    ],
)
async def test_what_is_refused_with_a_400_or_unanswered(tmp_path: Path, sent: bytes) -> None:
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        writer.write(sent)
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(), 60)
        assert answer[:13] in {b"", b"HTTP/1.1 400 "}
        assert answer.count(b"HTTP/1.1") <= 1
        await eventually_async(lambda: len(server.connections) == 0)


async def test_a_head_of_usual_size_is_counted_for_its_own_request_only(tmp_path: Path) -> None:
    async with serving(tmp_path, Bench().app) as server:
        client = await connect(server)
        for _ in range(20):
            answer = await ask(*client, b"X-Long: " + b"a" * 20_000 + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
        client[1].transport.abort()


async def test_what_does_not_come_to_its_end_is_given_up_and_idle_connections_are_kept(
    tmp_path: Path,
) -> None:
    begun = [b"", b"POST /mut", head(100) + b"{"]
    connections = Connections(clock=(clock := Clock()))
    async with serving(tmp_path, Bench().app, connections=connections) as server:
        kept = await connect(server)
        assert (await ask(*kept)).startswith(b"HTTP/1.1 200")
        slow = [await connect(server) for _ in begun]
        for (_, writer), sent in zip(slow, begun, strict=True):
            writer.write(sent)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(HALF_A_HELLO)
        phases = Counter([Phase.HANDSHAKE, Phase.HEAD, Phase.HEAD, Phase.BODY, Phase.IDLE])
        await eventually_async(
            lambda: all(len(connections.in_phase(each)) == n for each, n in phases.items())
        )
        clock.now = 6
        assert await ended(reader)
        writer.transport.abort()
        assert connections.evicted[EvictionReason.SLOW] == 1
        clock.now = 31
        assert [await ended(reader) for reader, _ in slow] == [True] * 3
        await eventually_async(lambda: (len(connections), connections.held_bytes) == (1, 0))
        assert (await ask(*kept)).startswith(b"HTTP/1.1 200")
        kept[1].transport.abort()


async def test_a_request_that_is_refused_before_its_end_ends_its_connection(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, Bench(max_body=10).app) as server:
        reader, writer = await connect(server)
        writer.write(head(20) + b" " * 10)
        answer = await asyncio.wait_for(reader.read(), 60)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in answer


@pytest.mark.parametrize("tls", [False, True])
async def test_connections_push_out_each_other_and_no_reviews(tmp_path: Path, tls: bool) -> None:
    connections = Connections(most=10, clock=Clock())
    context = client_context() if tls else None
    async with serving(tmp_path, Bench().app, connections=connections) as server:
        kept = await connect(server)
        assert (await ask(*kept)).startswith(b"HTTP/1.1 200")
        port = port_of(server)
        silent = [await asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(25)]
        await eventually_async(lambda: connections.evicted[EvictionReason.CONNECTIONS] == 16)
        assert len(connections) == 10
        for each in (kept, fresh := await connect(server)):
            assert (await ask(*each)).startswith(b"HTTP/1.1 200")
        for _, writer in [kept, fresh, *silent]:
            writer.transport.abort()


MUCH = 16 * MEBIBYTE


async def much(_scope: object, _receive: object, send: Callable[..., Awaitable[None]]) -> None:
    """Answer with more than sockets hold."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b" " * MUCH})


@pytest.mark.parametrize("most_held", [MUCH, MUCH - 1])
async def test_an_answer_that_is_not_read_is_counted_and_given_up(
    tmp_path: Path, most_held: int
) -> None:
    connections = Connections(most_held=most_held, clock=(clock := Clock()))
    async with serving(tmp_path, much, connections=connections) as server:
        _, writer = await connect(server)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        writer.write(head(0))
        reason = EvictionReason.MEMORY
        if most_held == MUCH:
            reason = EvictionReason.SLOW
            await eventually_async(lambda: connections.held_bytes == MUCH)
            clock.now = 31
        await eventually_async(lambda: connections.evicted[reason] == 1)
        await eventually_async(lambda: (len(connections), connections.held_bytes) == (0, 0))
        writer.transport.abort()


async def test_answers_of_closed_connections_are_freed_while_others_are_made(
    tmp_path: Path,
) -> None:
    made: set[object] = set()
    most = 0

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal most
        await receive()
        made.add(scope["client"])
        most = max(most, len(made))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b" " * MEBIBYTE})
        made.remove(scope["client"])

    connections = Connections(most_held=4 * MEBIBYTE, clock=Clock())
    async with serving(tmp_path, answer, connections=connections) as server:
        clients = [await connect(server) for _ in range(30)]
        for _, writer in clients:
            assert isinstance(writer.transport, asyncio.Transport)
            writer.transport.pause_reading()
            writer.write(head(0))
        await eventually_async(lambda: connections.evicted[EvictionReason.MEMORY] >= 20)
        # Four are held, and a closed connection's task ends in the fourth round of the event loop.
        assert most <= 8
        for _, writer in clients:
            writer.transport.abort()


async def test_a_large_answer_arrives_whole(tmp_path: Path) -> None:
    async with serving(tmp_path, much) as server:
        reader, writer = await connect(server)
        writer.write(START + b"Connection: close\r\n\r\n")
        _, _, content = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
        assert content.count(b" ") == MUCH
        writer.transport.abort()


@pytest.mark.usefixtures("young_heap")
async def test_nothing_is_left_of_a_connection_that_its_client_resets(tmp_path: Path) -> None:
    """A timer that kept it for 120 s would let anybody fill the memory."""
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        await ask(reader, writer)
        (protocol,) = server.server_state.connections
        left = weakref.ref(protocol.transport)
        del protocol
        linger = struct.pack("ii", 1, 0)  # makes the socket end with a reset
        connected = writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await eventually_async(lambda: gc.collect() >= 0 and left() is None)


class Failing(socket.socket):
    """A listening socket for which there are no file descriptors for a while."""

    failures = 3
    calls = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.calls += 1
        if self.calls <= self.failures:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_without_file_descriptors_accepting_waits_and_goes_on(tmp_path: Path) -> None:
    listener = Failing(fileno=listen("127.0.0.1", 0).detach())

    async def scenario() -> None:
        async with serving(tmp_path, Bench().app, listener=listener) as server:
            _, writer = await connect(server)
            writer.transport.abort()

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert Failing.failures < listener.calls < 10  # the listener was readable all the time
    events = [line["event"] for line in logs if line["log_level"] != "debug"]
    assert events.count("can't accept connections") == 1
    assert events.count("accepting connections again") == 1
