"""`kill -TERM` under load: whoever got a connection gets an answer to all that was asked on it.

A connection that is still in the kernel's queue when the listening socket closes may be reset: no
process can tell. Endpoints have forgotten the replica by then (`preStop`, `--drain-seconds`).
"""

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import eventually_async, soaking
from tests.webhook.reviews import body, patch_of
from tests.webhook.running import Webhook, start_webhook

KEEPING = 8
"""Connections that go on for as long as they may."""
RENEWING = 4
"""Clients that use a connection for one request."""
WARM = 200
"""Requests that are answered before the end begins."""


@dataclass
class Clients:
    """Clients that ask until nobody lets them connect."""

    port: int
    context: ssl.SSLContext
    connected: int = 0
    answered: int = 0
    told: int = 0
    """Answers that asked to come back on another connection."""
    queued: int = 0
    """Connections that nobody accepted; each client may have one."""
    problems: list[str] = field(default_factory=list)

    async def client(self, *, keeping: bool) -> None:
        loop = asyncio.get_running_loop()
        while True:
            plain = socket.socket()
            plain.setblocking(False)
            try:
                await loop.sock_connect(plain, ("127.0.0.1", self.port))
            except OSError:
                plain.close()
                return
            self.connected += 1
            try:
                async with asyncio.timeout(60):
                    await self._use(plain, keeping=keeping)
            except (OSError, EOFError, AssertionError, TimeoutError) as error:
                self.problems.append(f"connection {self.connected}: {error!r}")

    async def _use(self, plain: socket.socket, *, keeping: bool) -> None:
        try:
            reader, writer = await asyncio.open_connection(
                sock=plain, ssl=self.context, server_hostname="localhost"
            )
        except ConnectionResetError:
            self.queued += 1
            plain.close()
            return
        except BaseException:
            plain.close()
            raise
        try:
            closing = False
            while not closing:
                uid = f"{self.connected}-{self.answered}"
                content = body(uid=uid)
                writer.write(_HEAD % len(content) + content)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                assert patch_of(await reader.readexactly(length), uid)
                self.answered += 1
                told = b"connection: close" in head
                self.told += told
                closing = told or not keeping
        finally:  # the socket is closed before the event loop ends
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


_HEAD = (
    b"POST /mutate?timeout=5s HTTP/1.1\r\nHost: webhook\r\nContent-Length: %d\r\n"
    b"Content-Type: application/json\r\n\r\n"
)


async def ended_under_load(webhook: Webhook) -> Clients:
    """End a webhook while clients ask as fast as they can; they go on until it is gone."""
    clients = Clients(webhook.port, webhook.context())
    async with asyncio.TaskGroup() as tasks:
        for number in range(KEEPING + RENEWING):
            tasks.create_task(clients.client(keeping=number < KEEPING))
        await eventually_async(lambda: clients.answered > WARM)
        webhook.process.popen.send_signal(signal.SIGTERM)
    return clients


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_request_that_got_a_connection_goes_unanswered(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    rounds = 20 if soaking() else 1
    answered = connected = 0
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        webhook = start_webhook(folder, "--drain-seconds", "0.5")
        with webhook.process:
            clients = asyncio.run(ended_under_load(webhook))
            assert clients.queued <= KEEPING + RENEWING
            assert webhook.process.wait(60) == 0
        assert clients.problems == []
        assert clients.told > 0
        assert webhook.events("closed connections with unanswered requests") == []
        answered, connected = answered + clients.answered, connected + clients.connected
    figure(f"{rounds} ends, {connected} connections, {answered} requests, all answered")
