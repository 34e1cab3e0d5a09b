import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from services.process import http
from services.process.errors import ExternalFailure
from services.process.http import MetricsServer, Route, build_info, new_registry
from services.process.listening import ALL_ADDRESSES, listen, write_ports


async def crash() -> tuple[int, str]:
    raise RuntimeError("boom")


async def hang() -> tuple[int, str]:
    await asyncio.Event().wait()
    return 200, "never\n"


def answers(status: int, text: str | bytes) -> Route:
    async def answer() -> tuple[int, str | bytes]:
        return status, text

    return answer


ROUTES: Mapping[str, Route] = {
    "/healthz": answers(200, "ok\n"),
    "/readyz": answers(503, "no mappings\n"),
    "/json": answers(200, '{"ä": 1}'.encode()),
    "/crash": crash,
    "/hang": hang,
}


@contextlib.asynccontextmanager
async def running(
    registry: CollectorRegistry | None = None, deadline: float = 60
) -> AsyncIterator[int]:
    """The port of a server."""
    async with MetricsServer(registry or CollectorRegistry(), ROUTES, deadline=deadline) as server:
        await server.start("127.0.0.1", 0)
        yield server.port


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(request)
        try:
            return await asyncio.wait_for(reader.read(), 60)
        except ConnectionError:
            return b""


def request(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_metrics_are_shown_as_prometheus_reads_them() -> None:
    registry = new_registry()
    build_info(registry, "webhook")
    Counter("accelbind_things", "Things.", registry=registry).inc(3)
    async with running(registry) as port:
        head, _, body = (await exchange(port, request("/metrics?x=1"))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: text/plain; version=0.0.4" in head.lower()
    assert f"content-length: {len(body)}".encode() in head.lower()
    assert b"connection: close" in head.lower()
    assert b"accelbind_things_total 3.0" in body
    assert b'accelbind_build_info{component="webhook",python="3.' in body
    assert b"process_resident_memory_bytes" in body


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        (request("/healthz"), b"200", b"ok\n"),
        (b"GET /readyz HTTP/1.0\r\n\r\n", b"503", b"no mappings\n"),
        (request("/json"), b"200", '{"ä": 1}'.encode()),
        (request("/crash"), b"500", b"probe failed\n"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1", b"400", None),
    ],
)
async def test_every_request_gets_its_answer(
    asked: bytes, status: bytes, body: bytes | None
) -> None:
    async with running() as port:
        head, _, text = (await exchange(port, asked)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b" ")
    assert body is None or text == body


@pytest.mark.parametrize(
    ("asked", "answer"), [(b"GET /metr", b""), (request("/hang"), b"HTTP/1.1 500")]
)
async def test_no_exchange_takes_longer_than_the_deadline(asked: bytes, answer: bytes) -> None:
    async with running(deadline=0.5) as port:
        assert (await exchange(port, asked)).startswith(answer)


async def test_the_oldest_connection_makes_room_for_a_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    async with running() as port:
        oldest, first = await asyncio.open_connection("127.0.0.1", port)
        younger, second = await asyncio.open_connection("127.0.0.1", port)
        assert (await exchange(port, request("/healthz"))).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(oldest.read(), 60) == b""
        second.write(request("/healthz"))
        assert (await asyncio.wait_for(younger.read(), 60)).startswith(b"HTTP/1.1 200")
        first.close()
        second.close()


async def test_closing_ends_what_is_going_on() -> None:
    begun = asyncio.Event()

    async def hanging_probe() -> tuple[int, str]:
        begun.set()
        return await hang()

    server = MetricsServer(CollectorRegistry(), {"/hang": hanging_probe})
    await server.start("127.0.0.1", 0)
    hanging = asyncio.create_task(exchange(server.port, request("/hang")))
    await begun.wait()
    await server.close()
    await hanging
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", server.port)


# Sockets that listen


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def test_all_addresses_are_those_of_both_families_and_answers_go_without_delay() -> None:
    with listen(ALL_ADDRESSES, 0) as listener:
        for host in ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
            with socket.create_connection((host, port_of(listener)), timeout=60):
                accepted, _ = listener.accept()
                with accepted:
                    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("error", [OSError(97, "no IPv6"), ValueError("no dual stack")])
def test_where_there_is_no_ipv6_all_addresses_are_ipv4(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    create = socket.create_server

    def without_ipv6(
        address: tuple[str, int], *, family: int, backlog: int, dualstack_ipv6: bool = False
    ) -> socket.socket:
        if family == socket.AF_INET6:
            assert dualstack_ipv6
            raise error
        return create(address, family=family, backlog=backlog)

    monkeypatch.setattr(socket, "create_server", without_ipv6)
    with listen(ALL_ADDRESSES, 0) as listener:
        assert listener.family == socket.AF_INET


def test_a_port_that_is_taken_and_a_host_that_is_not_ours_are_told() -> None:
    with listen(ALL_ADDRESSES, 0) as listener:
        port = port_of(listener)
        with pytest.raises(
            ExternalFailure, match=rf"^can't listen on .*{port}: Address already in use$"
        ):
            listen(ALL_ADDRESSES, port)
    with pytest.raises(ExternalFailure, match=r"^can't listen on no\.such\.host\.invalid: "):
        listen("no.such.host.invalid", 0)


def test_ports_are_written_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    write_ports(path, {"metrics": 2, "admission": 1})
    assert json.loads(path.read_text()) == {"admission": 1, "metrics": 2}
    assert path.stat().st_mode & 0o777 == 0o644
