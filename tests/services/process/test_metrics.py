import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping

import pytest
from prometheus_client import CollectorRegistry, Counter

from services.process import metrics
from services.process.errors import WorldError
from services.process.metrics import MetricsServer, Route, build_info, new_registry, serve
from tests.support import eventually_async


async def _well() -> tuple[int, str]:
    return 200, "ok\n"


async def _ill() -> tuple[int, str]:
    return 503, "no mappings\n"


async def _crash() -> tuple[int, str]:
    raise RuntimeError("boom")


async def _forever() -> tuple[int, str]:
    await asyncio.Event().wait()
    return 200, ""


ROUTES: Mapping[str, Route] = {
    "/healthz": _well,
    "/readyz": _ill,
    "/crash": _crash,
    "/forever": _forever,
}


@contextlib.asynccontextmanager
async def running(
    registry: CollectorRegistry | None = None, deadline: float = 60
) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(registry or CollectorRegistry(), ROUTES, deadline=deadline)
    await server.start("127.0.0.1", 0)
    async with server:
        yield server


async def exchange(port: int, request: bytes, *, end: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(request)
        if end:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 60)


def ask(request: bytes, registry: CollectorRegistry | None = None) -> tuple[bytes, bytes]:
    async def scenario() -> bytes:
        async with running(registry) as server:
            return await exchange(server.port, request)

    head, _, body = asyncio.run(scenario()).partition(b"\r\n\r\n")
    return head, body


def test_metrics_are_shown_as_prometheus_reads_them() -> None:
    registry = new_registry()
    build_info(registry, "webhook")
    Counter("accelbind_things", "Things.", registry=registry).inc(3)
    head, body = ask(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", registry)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=0.0.4" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"accelbind_things_total 3.0" in body
    assert b'accelbind_build_info{component="webhook",python="3.' in body
    assert b"process_resident_memory_bytes" in body


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /healthz HTTP/1.1", b"200 OK"),
        (b"GET /readyz HTTP/1.0", b"503 Service Unavailable"),
        (b"GET /crash HTTP/1.1", b"500 Internal Server Error"),
        (b"GET /none HTTP/1.1", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed"),
        (b"DELETE /healthz HTTP/1.1", b"405 Method Not Allowed"),
        (b"GET /healthz", b"400 Bad Request"),
        (b"GET healthz HTTP/1.1", b"400 Bad Request"),
        (b"\xff\xfe / HTTP/1.1", b"400 Bad Request"),
        (b"GET / HTTP/2.0", b"400 Bad Request"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1", b"431 Request Header Fields Too Large"),
    ],
)
def test_every_request_gets_its_answer(request_line: bytes, status: bytes) -> None:
    head, body = ask(request_line + b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert body.endswith(b"\n")


def test_a_probe_that_says_no_says_why() -> None:
    assert ask(b"GET /readyz HTTP/1.1\r\n\r\n")[1] == b"no mappings\n"


def test_head_is_get_without_a_body() -> None:
    head, body = ask(b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 3" in head
    assert body == b""


def test_a_client_that_says_nothing_is_let_go() -> None:
    async def scenario() -> bytes:
        async with running(deadline=0.05) as server:
            return await exchange(server.port, b"GET /metr")

    assert asyncio.run(scenario()) == b""


def test_a_client_that_ends_before_it_asked_is_let_go() -> None:
    async def scenario() -> bytes:
        async with running() as server:
            return await exchange(server.port, b"GET /metr", end=True)

    assert asyncio.run(scenario()) == b""


def test_a_probe_that_hangs_ends_with_the_deadline() -> None:
    async def scenario() -> bytes:
        async with running(deadline=0.2) as server:
            return await exchange(server.port, b"GET /forever HTTP/1.1\r\n\r\n")

    assert asyncio.run(scenario()) == b""


def test_a_probe_that_hangs_holds_up_nobody() -> None:
    async def scenario() -> bytes:
        async with running() as server:
            hanging = asyncio.create_task(exchange(server.port, b"GET /forever HTTP/1.1\r\n\r\n"))
            await eventually_async(lambda: len(server._exchanges) == 1)
            other = await exchange(server.port, b"GET /healthz HTTP/1.1\r\n\r\n")
            assert not hanging.done()
            hanging.cancel()
            await asyncio.wait([hanging])
            return other

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 200")


def test_a_client_that_takes_nothing_is_let_go() -> None:
    registry = CollectorRegistry()
    counter = Counter("accelbind_many", "Many.", ("label",), registry=registry)
    for number in range(20_000):
        counter.labels("x" * 200 + str(number)).inc()

    async def scenario() -> int:
        async with running(registry, deadline=0.5) as server:
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", server.port))
            deaf.send(b"GET /metrics HTTP/1.1\r\n\r\n")
            await eventually_async(lambda: len(server._exchanges) == 1)
            await eventually_async(lambda: len(server._exchanges) == 0)
            deaf.close()
            return len(server._exchanges)

    assert asyncio.run(scenario()) == 0


def test_more_connections_than_it_takes_are_refused_until_others_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MAX_CONNECTIONS", 2)

    async def scenario() -> tuple[bytes, bytes]:
        async with running() as server:
            first = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
            for _, writer in first:
                writer.write(b"GET /forever HTTP/1.1\r\n\r\n")
            await eventually_async(lambda: len(server._exchanges) == 2 and not server._silent)
            try:
                refused = await exchange(server.port, b"GET /healthz HTTP/1.1\r\n\r\n")
            except ConnectionError:
                refused = b""
            for _, writer in first:
                writer.close()
            for task in tuple(server._exchanges):
                task.cancel()
            await eventually_async(lambda: len(server._exchanges) == 0)
            return refused, await exchange(server.port, b"GET /healthz HTTP/1.1\r\n\r\n")

    refused, taken = asyncio.run(scenario())
    assert refused == b""
    assert taken.startswith(b"HTTP/1.1 200")


def test_clients_that_say_nothing_make_room_for_a_probe_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MAX_CONNECTIONS", 2)

    async def scenario() -> tuple[bytes, bytes, int]:
        async with running() as server:
            oldest, first = await asyncio.open_connection("127.0.0.1", server.port)
            await eventually_async(lambda: len(server._silent) == 1)
            younger, second = await asyncio.open_connection("127.0.0.1", server.port)
            await eventually_async(lambda: len(server._silent) == 2)
            probe = await exchange(server.port, b"GET /healthz HTTP/1.1\r\n\r\n")
            gone = await asyncio.wait_for(oldest.read(), 60)
            second.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            answered = await asyncio.wait_for(younger.read(), 60)
            await eventually_async(lambda: not server._exchanges)
            first.close()
            second.close()
            assert gone == b""
            return probe, answered, len(server._silent)

    probe, answered, left = asyncio.run(scenario())
    assert probe.startswith(b"HTTP/1.1 200")
    assert answered.startswith(b"HTTP/1.1 200")
    assert left == 0


def test_closing_ends_what_is_going_on() -> None:
    async def scenario() -> bool:
        server = await serve(CollectorRegistry(), "127.0.0.1", 0, ROUTES)
        hanging = asyncio.create_task(exchange(server.port, b"GET /forever HTTP/1.1\r\n\r\n"))
        await eventually_async(lambda: len(server._exchanges) == 1)
        await server.close()
        with contextlib.suppress(ConnectionError):
            assert await hanging == b""
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", server.port)
        return True

    assert asyncio.run(scenario())


def test_a_server_that_never_started_closes() -> None:
    server = MetricsServer(CollectorRegistry())
    asyncio.run(server.close())
    assert server.port == 0


def test_an_address_that_is_taken_is_told() -> None:
    async def scenario() -> None:
        async with running() as server:
            await serve(CollectorRegistry(), "127.0.0.1", server.port)

    with pytest.raises(WorldError, match=r"can't listen on 127\.0\.0\.1:"):
        asyncio.run(scenario())
