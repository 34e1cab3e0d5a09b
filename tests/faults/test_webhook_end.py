"""Rolling restarts of two replicas under load: each request is answered.

As in a cluster, clients connect to replicas that are endpoints of the Service. A replica stops
being one a moment after its SIGTERM, within `--drain-seconds`.
"""

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from certs.folder import issue
from tests.support import eventually_async, soaking
from tests.webhook.reviews import body, patch_of
from tests.webhook.running import Webhook, start_webhook

BUSY = 6
"""Clients that use a connection, without a pause, until an answer asks them to reconnect."""
RENEWING = 3
"""Clients that use a connection for one request."""
PAUSING = 6
"""Clients as the busy ones, with pauses between requests."""
WARM = 150
"""Requests that are answered between one restart and the next."""
DRAIN_SECONDS = 1.5
ENDPOINT_SECONDS = 0.3
"""Time until clients know that a replica gets no more connections."""

_HEAD = (
    b"POST /mutate?timeout=5s HTTP/1.1\r\nHost: webhook\r\nContent-Length: %d\r\n"
    b"Content-Type: application/json\r\n\r\n"
)


@dataclass
class Clients:
    """Clients that ask until they are stopped."""

    endpoints: list[Webhook]
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    connected: int = 0
    answered: int = 0
    reconnecting: int = 0
    """Answers that asked to come back on another connection."""
    problems: list[str] = field(default_factory=list)
    _contexts: dict[int, ssl.SSLContext] = field(default_factory=dict)

    async def client(self, number: int, *, uses: int, pause: float) -> None:
        """Ask, `uses` times on each connection at most."""
        while not self.stopped.is_set():
            webhook = self.endpoints[(number + self.connected) % len(self.endpoints)]
            try:
                async with asyncio.timeout(60), self._connection(webhook) as (reader, writer):
                    for _ in range(uses):
                        if self.stopped.is_set() or not await self._ask(reader, writer):
                            break
                        await asyncio.sleep(pause)  # as an API server with few pods
            except (OSError, EOFError, AssertionError) as error:  # also a timeout
                self.problems.append(f"connection to {webhook.port}: {error!r}")

    @contextlib.asynccontextmanager
    async def _connection(
        self, webhook: Webhook
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        context = self._contexts.setdefault(webhook.port, webhook.context())
        reader, writer = await asyncio.open_connection("localhost", webhook.port, ssl=context)
        self.connected += 1
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Make a review; return whether the connection may be used again."""
        uid = f"{self.connected}-{self.answered}"
        content = body(uid=uid)
        writer.write(_HEAD % len(content) + content)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        assert patch_of(await reader.readexactly(length), uid)
        self.answered += 1
        closing = b"connection: close" in head
        self.reconnecting += closing
        return not closing


async def restart(clients: Clients, started: Iterator[Webhook]) -> None:
    """Replace the older of two replicas, and renew the certificate of the other one."""
    before, (older, other) = clients.answered, clients.endpoints
    fresh = await asyncio.to_thread(next, started)
    clients.endpoints.append(fresh)
    older.process.popen.send_signal(signal.SIGTERM)
    await asyncio.sleep(ENDPOINT_SECONDS)  # clients may still connect to it
    clients.endpoints.remove(older)
    await asyncio.to_thread(issue, other.tls, ["localhost"])
    assert await asyncio.to_thread(older.process.wait, 60) == 0
    await eventually_async(lambda: clients.answered >= before + WARM)


async def restarted_under_load(clients: Clients, started: Iterator[Webhook], rounds: int) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(BUSY + RENEWING + PAUSING):
            uses = 1 if BUSY <= number < BUSY + RENEWING else 1_000_000
            pause = 0.1 if number >= BUSY + RENEWING else 0
            tasks.create_task(clients.client(number, uses=uses, pause=pause))
        try:
            for _ in range(rounds):
                await restart(clients, started)
        finally:
            clients.stopped.set()


@pytest.mark.long
@pytest.mark.timeout(0)
def test_rolling_restarts_and_renewed_certificates_leave_no_request_unanswered(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    rounds = 50 if soaking() else 1
    with contextlib.ExitStack() as running:

        def start() -> Iterator[Webhook]:
            for number in count():
                (folder := tmp_path / str(number)).mkdir()
                webhook = start_webhook(folder, "--drain-seconds", str(DRAIN_SECONDS))
                running.enter_context(webhook.process)
                yield webhook

        started = start()
        clients = Clients([next(started), next(started)])
        asyncio.run(restarted_under_load(clients, started, rounds))
    assert clients.problems == []
    assert clients.reconnecting > 0
    figure(
        f"{rounds} restarts, {clients.connected} connections, {clients.answered} requests,"
        " all answered"
    )
