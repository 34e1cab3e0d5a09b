"""Many clients that want the webhook's memory, while others want their reviews."""

import asyncio
import contextlib
import errno
import gc
import socket
import ssl
import struct
import subprocess
import sys
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.process.listening import listen
from tests.support import REPOSITORY, eventually, eventually_async
from tests.webhook.asgi import Bench
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, patch_of
from tests.webhook.running import Webhook
from tests.webhook.test_floods import MEBIBYTE, peak, review
from tests.webhook.test_server import client_context, connect, ended, head, port_of, serving
from webhook import connections
from webhook import server as servers
from webhook.connections import EvictionReason, Limits
from webhook.limits import HEADER_BYTES, MAX_HEADERS

pytestmark = pytest.mark.anyio


CLOSING = "closing connections to stay within limits"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500
"""A ClientHello of an ordinary length; it means nothing."""


def fresh_review(webhook: Webhook, uid: str) -> bool:
    return bool(patch_of(webhook.ask("/mutate", body(uid=uid)).body, uid))


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Make a review; return the status line and the body of the answer."""
    content = body()
    writer.write(head(len(content)) + content)
    found = await reader.readuntil(b"\r\n\r\n")
    length = int(found.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return found[:12] + await reader.readexactly(length)


def test_unfinished_bodies_push_out_each_other_and_no_reviews(tmp_path: Path) -> None:
    size = 100_000
    limits = Limits(held_bytes=10 * size)

    async def scenario() -> None:
        async with serving(tmp_path, Bench(max_body=size).app, limits=limits) as server:
            kept = await connect(server)
            assert (await ask(*kept)).startswith(b"HTTP/1.1 200")
            flood = []
            for _ in range(20):
                reader, writer = await connect(server)
                writer.write(head(size) + b" " * (size - 1))
                flood.append((reader, writer))
                assert (await ask(*kept)).startswith(b"HTTP/1.1 200")
                assert server.limiter.held_bytes <= limits.held_bytes
            await eventually_async(lambda: server.limiter.evicted[EvictionReason.MEMORY] >= 10)
            assert await ended(flood[0][0])
            fresh = await connect(server)
            assert (await ask(*fresh)).startswith(b"HTTP/1.1 200")
            for _, writer in [kept, fresh, *flood]:
                writer.transport.abort()

    with capture_logs() as logs:
        asyncio.run(scenario())
    (line,) = [each for each in logs if each["event"] == CLOSING]
    assert line["reason"] == EvictionReason.MEMORY


def test_connections_that_say_nothing_push_out_each_other_and_no_reviews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LEAST_SECONDS", 0.05)

    async def scenario() -> None:
        async with serving(tmp_path, Bench().app, limits=Limits(handshakes=10)) as server:
            kept = await connect(server)
            assert (await ask(*kept)).startswith(b"HTTP/1.1 200")
            port = port_of(server)
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(25)]
            counts = server.limiter.evicted
            await eventually_async(lambda: counts[EvictionReason.HANDSHAKES] == 15)
            assert server.limiter.handshakes == 10
            for each in (kept, fresh := await connect(server)):
                assert (await ask(*each)).startswith(b"HTTP/1.1 200")
            for _, writer in [kept, fresh, *silent]:
                writer.transport.abort()

    with capture_logs() as logs:
        asyncio.run(scenario())
    (line,) = [each for each in logs if each["event"] == CLOSING]
    assert line["reason"] == EvictionReason.HANDSHAKES


async def test_an_unfinished_head_counts_with_what_its_headers_take(tmp_path: Path) -> None:
    async with serving(tmp_path, Bench().app) as server:
        _, writer = await connect(server)
        writer.write(b"POST /mutate HTTP/1.1\r\n" + b"a:b\r\n" * MAX_HEADERS)
        least = HEADER_BYTES * MAX_HEADERS
        await eventually_async(lambda: server.limiter.held_bytes >= least)
        writer.transport.abort()
        await eventually_async(lambda: server.limiter.held_bytes == 0)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x40\x00\x01\x01\xff\xff" + b"\x00" * 16_000,
        b"\x16\x03\x01\x20\x00\x01\x00\x20\x01",
        HELLO[:8],
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["128 KiB", "over 8 KiB", "cut off", "plain HTTP"],
)
async def test_a_hello_that_is_too_long_is_not_read(tmp_path: Path, sent: bytes) -> None:
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(sent)
        assert await ended(reader), "nothing is answered"
        await eventually_async(lambda: server.limiter.connections == 0)
        writer.transport.abort()


async def test_a_client_that_does_not_wait_for_answers_is_cut_off(tmp_path: Path) -> None:
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n" * 200)
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        assert server.limiter.evicted[EvictionReason.PIPELINED] == 1
        writer.transport.abort()


@pytest.mark.parametrize("talks", [False, True], ids=["says nothing", "speaks no TLS to its end"])
async def test_a_handshake_that_does_not_come_to_its_end_is_given_up(
    tmp_path: Path, talks: bool
) -> None:
    async with serving(tmp_path, Bench().app, limits=Limits(handshake_seconds=0.1)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(HELLO[:20] if talks else b"")
        gone = await ended(reader)
        writer.transport.abort()
        assert gone
        assert server.limiter.evicted[EvictionReason.SLOW] == 1


async def test_handshakes_under_way_are_counted_until_they_end(tmp_path: Path) -> None:
    async with serving(tmp_path, Bench().app) as server:
        limiter = server.limiter
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        await eventually_async(lambda: limiter.handshakes == 1)
        _, other = await connect(server)
        await eventually_async(lambda: (limiter.connections, limiter.handshakes) == (2, 1))
        writer.write(b"no TLS at all\r\n\r\n")
        await eventually_async(lambda: (limiter.connections, limiter.handshakes) == (1, 0))
        other.transport.abort()
        writer.transport.abort()
        await eventually_async(lambda: limiter.connections == 0)
        assert sum(server.limiter.evicted.values()) == 0


def ask_without_reading(port: int) -> ssl.SSLSocket:
    secured = client_context().wrap_socket(
        socket.create_connection(("127.0.0.1", port), timeout=60)
    )
    secured.sendall(head(0))
    return secured


async def test_an_answer_that_is_not_read_is_given_up(tmp_path: Path) -> None:
    async def much(_scope: object, _receive: object, send: Callable[..., Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        part = {"type": "http.response.body", "body": b" " * MEBIBYTE, "more_body": True}
        for _ in range(200):  # more than sockets hold
            await send(part)

    async with serving(tmp_path, much, limits=Limits(request_seconds=0.5)) as server:
        with await asyncio.to_thread(ask_without_reading, port_of(server)):
            counts = server.limiter.evicted
            await eventually_async(lambda: counts[EvictionReason.SLOW] == 1)
            await eventually_async(lambda: server.limiter.held_bytes == 0)


async def test_new_connections_wait_while_those_before_them_are_still_young(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LEAST_SECONDS", 3600.0)

    async with serving(tmp_path, Bench().app, limits=Limits(handshakes=4)) as server:
        port = port_of(server)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await eventually_async(lambda: server.limiter.handshakes == 1)
        flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        await eventually_async(lambda: server.limiter.handshakes == 4)
        await writer.start_tls(client_context())
        writer.write(head(len(body())) + body())
        answer = await asyncio.wait_for(reader.readline(), 60)
        assert sum(server.limiter.evicted.values()) == 0
        for _, each in [(reader, writer), *flood]:
            each.transport.abort()
        assert answer == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [(head(len(body())) + body(), 200), (b"POST / HTTP/1.1\r\n" + b"a:b\r\n" * 3000, 431)],
    ids=["after a review", "after a refusal"],
)
async def test_nothing_is_left_of_a_connection_that_its_client_resets(
    tmp_path: Path, sent: bytes, status: int
) -> None:
    """A timer that kept it for 120 s would let anybody fill the memory."""

    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        await eventually_async(lambda: len(server._protocols) == 1)
        left = weakref.ref(server._protocols[0].transport)
        writer.write(sent)
        assert (await reader.readline()).split()[1] == b"%d" % status
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


def test_without_file_descriptors_accepting_waits_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "RETRY_SECONDS", 0.05)

    listener = Failing(fileno=listen("127.0.0.1", 0).detach())

    async def scenario() -> None:
        async with serving(tmp_path, Bench().app, listener=listener) as server:
            _, writer = await connect(server)
            writer.transport.abort()

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert Failing.failures < listener.calls < 10  # the listener was readable all the time
    assert len([line for line in logs if line["event"] == "can't accept connections"]) == 1


@contextlib.contextmanager
def attacked(
    webhook: Webhook, connections: int, kinds: dict[str, int]
) -> Iterator[Callable[[], bool]]:
    """A webhook under attack; yields whether the attack goes on."""
    named = [str(connections), *(f"{kind}={number}" for kind, number in kinds.items())]
    command = [sys.executable, "-m", "tests.webhook.attackers", str(webhook.port), *named]
    process = subprocess.Popen(command, cwd=REPOSITORY)
    try:
        yield lambda: process.poll() is None
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.parametrize(
    ("connections", "kinds"),
    [
        (60, {"bodies": 20, "drips": 40}),
        (600, {"idle": 350, "kept": 100}),
        (600, {"half_open": 200, "silent": 200}),
        (300, {"heads": 100, "short_heads": 50}),
    ],
    ids=str,
)
def test_a_flood_costs_less_than_110_mib_and_no_review(
    start: Starter, monkeypatch: pytest.MonkeyPatch, connections: int, kinds: dict[str, int]
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")  # as in manifests/base/webhook.yaml
    webhook = start()
    with contextlib.closing(webhook.connect()) as kept:
        assert review(kept, "before")
        before, number = peak(webhook), 0
        with attacked(webhook, connections, kinds) as goes_on:
            while goes_on():
                number += 1
                assert review(kept, f"kept-{number}")
                assert fresh_review(webhook, f"fresh-{number}")
        assert peak(webhook) - before < 110 * MEBIBYTE
        assert eventually(lambda: webhook.metric("accelbind_connections") == 1)
        assert webhook.metric("accelbind_connections_held_bytes") == 0
