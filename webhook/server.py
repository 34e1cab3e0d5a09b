"""uvicorn as this process needs it: TLS that follows its certificate, limits, a good end.

uvicorn has no time limit of its own for a request that doesn't come to its end; `AdmissionServer`
looks once a second. And it closes connections at once when told to stop, those included on which a
request is just arriving; here, first, no new ones are taken, then those that have a request, or
were opened a moment ago, get their answer.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, cast

import structlog
import uvicorn

from webhook.admission import Gate
from webhook.direct import DirectProtocol

KEEP_ALIVE: Final = 120
"""Seconds; above the 90 of the API server's client, which doesn't repeat a POST on a connection
that was closed under it."""
REQUEST_SECONDS: Final = 30.0
"""How long a request may take to arrive; the API server gives up after 30 s at the most."""
GRACE_SECONDS: Final = 0.5
"""How long, at the end, a connection without a request is waited for."""
END_SECONDS: Final = 10.0
"""How long, at the end, requests that have arrived may take."""
_TICK: Final = 0.02

log = structlog.get_logger(room="server")


class TimedProtocol(DirectProtocol):
    """One connection; it knows since when it has been waiting for a request to become whole.

    Attributes:
        waiting_since: The loop's time; None while nothing is due from the client.
    """

    waiting_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """A TLS handshake is done; a request should follow."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()

    def on_message_begin(self) -> None:
        """The first bytes of a request."""
        super().on_message_begin()
        self.waiting_since = self.loop.time()

    def on_message_complete(self) -> None:
        """The last bytes of a request.

        One that was answered before (too large) has used up uvicorn's keep-alive timer, so the
        next one is waited for as after a handshake.
        """
        direct = bool(self.endpoint)
        super().on_message_complete()
        self.waiting_since = None if direct or self.answering else self.loop.time()


class AdmissionServer(uvicorn.Server):
    """A uvicorn server that is stopped by whoever runs it, not by signals.

    Args:
        app: The ASGI application.
        context: TLS.
        gate: Answers reviews before they get to the application; see `webhook.direct`.
        request_seconds: How long a request may take to arrive.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        context: ssl.SSLContext,
        *,
        gate: Gate | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=type("GatedProtocol", (TimedProtocol,), {"gate": gate}),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=1,  # what is left then has had its time already
            ssl_context_factory=lambda _config, _default: context,
        )
        super().__init__(config)
        self.listening = asyncio.Event()
        self._request_seconds = request_seconds

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: the process has handlers of its own."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, and says so."""
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes no more connections, answers what has come, ends."""
        for server in self.servers:
            server.close()
        await self._until(lambda: not self._connections, GRACE_SECONDS)
        await self._until(self._closed, END_SECONDS)
        left = [connection for connection in self._connections if connection.answering]
        if left:
            log.warning("requests left unanswered at the end", number=len(left))
        for connection in self._connections:
            connection.transport.abort()
        await super().shutdown(sockets)

    async def sweep(self, interval: float = 1.0) -> NoReturn:
        """Ends connections whose request doesn't come to its end, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval)
            oldest = loop.time() - self._request_seconds
            for connection in self._connections:
                since = connection.waiting_since
                if since is not None and since < oldest:
                    log.info("client too slow", client=str(connection.client))
                    connection.transport.abort()

    @property
    def _connections(self) -> list[TimedProtocol]:
        return cast("list[TimedProtocol]", list(self.server_state.connections))

    def _closed(self) -> bool:
        """Tells all connections to close as soon as they may; whether those with requests have.

        One that only waits for its peer to say goodbye (TLS) is not waited for.
        """
        for connection in self._connections:
            if not connection.transport.is_closing():
                connection.shutdown()
        return not any(connection.answering for connection in self._connections)

    async def _until(self, reached: Callable[[], bool], seconds: float) -> None:
        """Waits for something that uvicorn has no event for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not reached():  # noqa: ASYNC110 - its set of connections tells nobody
                    await asyncio.sleep(_TICK)
