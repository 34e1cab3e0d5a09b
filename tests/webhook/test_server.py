"""The server and the process's parts within this one, where time can be made short."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from certs.folder import issue
from services.process.errors import ExternalFailure
from services.process.listening import listen
from services.process.tls import CertificateSource
from tests.support import eventually_async
from tests.webhook.asgi import Bench
from tests.webhook.reviews import body
from tests.webhook.running import settings
from webhook.process import Webhook
from webhook.server import SOCKET_BUFFERS, AdmissionServer

App = Callable[..., Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(folder: Path, app: App) -> AsyncIterator[AdmissionServer]:
    issue(folder / "tls", ["localhost"])
    certificates = CertificateSource(folder / "tls" / "tls.crt", folder / "tls" / "tls.key")
    certificates.load()
    server = AdmissionServer(app, certificates.context)
    listener = listen("127.0.0.1", 0, buffers=SOCKET_BUFFERS)
    server.config.port = listener.getsockname()[1]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield server
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 60)


def port_of(server: AdmissionServer) -> int:
    return server.config.port


def client_context() -> ssl.SSLContext:
    """TLS of a client that trusts anybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def connect(server: AdmissionServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port_of(server), ssl=client_context())


async def ended(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 60) == b""
    return True


def head(length: int) -> bytes:
    lines = f"Content-Length: {length}\r\nContent-Type: application/json\r\n\r\n"
    return b"POST /mutate HTTP/1.1\r\nHost: x\r\n" + lines.encode()


async def test_a_hanging_application_does_not_hold_up_the_end(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def hang(_scope: object, _receive: object, _send: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with serving(tmp_path, hang) as server:
        server.config.timeout_graceful_shutdown = 1
        _, writer = await connect(server)
        writer.write(head(0))
        await begun.wait()
    writer.transport.abort()


async def test_a_request_whose_body_has_begun_is_answered_at_the_end(tmp_path: Path) -> None:
    request = head(len(body())) + body()
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        writer.write(request[:200])
        await eventually_async(lambda: any(each.body_left for each in server.opened))
        server.app.draining = server.should_exit = True
        await eventually_async(lambda: not any(each.is_serving() for each in server.servers))
        writer.write(request[200:])
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.transport.abort()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer


def test_after_a_mistake_of_ours_the_connection_ends_with_a_500(tmp_path: Path) -> None:
    bench = Bench()
    del bench.mappings.index

    async def scenario() -> bytes:
        async with serving(tmp_path, bench.app) as server:
            reader, writer = await connect(server)
            writer.write(head(len(body())) + body())
            answer = await asyncio.wait_for(reader.read(), 60)
            writer.transport.abort()
            return answer

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 500 ")


async def test_readiness_waits_for_mappings_ends_when_stopping_and_is_logged(
    tmp_path: Path,
) -> None:
    webhook = Webhook(settings(tmp_path, mappings=tmp_path))
    with capture_logs() as logs:
        webhook.mappings.loaded = False
        assert await webhook.readyz() == (503, "mappings not loaded\n")
        webhook.mappings.loaded = True
        assert await webhook.readyz() == (200, "ok\n")
        webhook.server.app.draining = True
        assert await webhook.readyz() == (503, "stopping\n")
    assert [(line["event"], line.get("reason")) for line in logs] == [
        ("not ready", "mappings not loaded"),
        ("ready", None),
        ("not ready", "stopping"),
    ]


@pytest.mark.parametrize(("raised", "text"), [(OSError("boom"), "boom"), (None, "a part of the")])
def test_a_part_that_ends_by_itself_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: OSError | None, text: str
) -> None:
    async def follow(_: CertificateSource) -> None:
        if raised is not None:
            raise raised

    async def scenario() -> None:
        webhook = Webhook(settings(tmp_path, mappings=tmp_path))
        await asyncio.wait_for(webhook.run_until(asyncio.Event()), 60)

    monkeypatch.setattr(CertificateSource, "follow", follow)
    with pytest.raises((OSError, ExternalFailure), match=text):
        asyncio.run(scenario())
