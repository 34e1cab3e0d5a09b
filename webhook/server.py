"""uvicorn as this process needs it: TLS that follows its certificate, limits, a drained end.

uvicorn has no time limit for a request that doesn't come to its end; `AdmissionServer.sweep` looks
once a second. And uvicorn closes connections at once when it is stopped, those included on which a
request is just arriving. Here whoever has a connection gets an answer, in these steps:

1. Who has connected is accepted, and the listening sockets close.
2. Requests are answered, each as the last one of its connection. A connection that hasn't brought
   its first request yet, its handshake included, has a while for it; one that has brought some, a
   shorter one.
3. Answers are on their way: peers have a moment to take them and to close.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, cast

import structlog
import uvicorn

from webhook.acceptor import Acceptor
from webhook.ledger import EvictionReason, Limits
from webhook.limits import ConnectionLimiter, LimitedProtocol

KEEP_ALIVE: Final = 120
"""Seconds; above the 90 of the API server's client, which doesn't repeat a POST on a connection
that was closed under it."""
GRACE_SECONDS: Final = 0.5
"""How long, at the end, a connection is waited for that has brought requests."""
FIRST_SECONDS: Final = 3.0
"""How long one is waited for that has not."""
GOODBYE_SECONDS: Final = 1.0
"""How long peers may take to close what we have closed."""
END_SECONDS: Final = 10.0
"""How long, at the end, requests that have arrived may take."""
_TICK: Final = 0.02

log = structlog.get_logger(room="server")


class AdmissionServer(uvicorn.Server):
    """A uvicorn server that is stopped by whoever runs it, not by signals.

    Args:
        app: The ASGI application.
        context: TLS.
        limits: Bounds for what all clients together may hold.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        context: ssl.SSLContext,
        *,
        limits: Limits | None = None,
    ) -> None:
        connections = ConnectionLimiter(limits)

        class Protocol(LimitedProtocol):
            """A connection of this server."""

            limiter = connections

        self.limiter = connections
        self.acceptors: list[Acceptor] = []
        self._context = context
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=1,  # what is left then has had its time already
        )
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: the process has handlers of its own."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, and says so; uvicorn itself gets no sockets."""
        await super().startup([])
        self.acceptors = [self.accept_from(listener) for listener in sockets or []]
        self.listening.set()

    def accept_from(self, listener: socket.socket) -> Acceptor:
        """Accepts the connections of a listening socket from now on."""
        return Acceptor(listener, self._context, self._create_protocol, self.limiter)

    async def shutdown(
        self,
        sockets: list[socket.socket] | None = None,  # noqa: ARG002 - the acceptors have them
    ) -> None:
        """Takes no more connections, answers what has come, ends."""
        for acceptor in self.acceptors:
            acceptor.close()
        clock = asyncio.get_running_loop().time
        begun = clock()
        await self._until(lambda: self._finished(clock() - begun), END_SECONDS)
        await self._until(lambda: not self._connections, GOODBYE_SECONDS)
        left = [connection for connection in self._connections if connection.answering]
        if left:
            log.warning("requests left unanswered at the end", number=len(left))
        for connection in self._connections:
            connection.transport.abort()
        await super().shutdown([])

    async def sweep(self, interval: float = 1.0) -> NoReturn:
        """Ends connections whose request doesn't come (to its end), until cancelled."""
        while True:
            await asyncio.sleep(interval)
            self._close_slow(asyncio.get_running_loop().time())

    def _close_slow(self, now: float) -> None:
        for connection in self._connections:
            since = connection.waiting_since
            if since is not None and now - since > self.limiter.limits.request_seconds:
                self.limiter.count(EvictionReason.SLOW, connection)
                connection.abort()
        self.limiter.log_end(now)

    @property
    def _connections(self) -> list[LimitedProtocol]:
        return cast("list[LimitedProtocol]", list(self.server_state.connections))

    def _create_protocol(self) -> LimitedProtocol:
        made = self.config.http_protocol_class(
            config=self.config,  # type: ignore[call-arg]  # as uvicorn calls it
            server_state=self.server_state,
            app_state={},
        )
        return cast("LimitedProtocol", made)

    def _finished(self, elapsed: float) -> bool:
        """Closes what may be closed after so many seconds; whether nothing is owed any more."""
        owing = bool(self.limiter.ledger.handshakes) and elapsed < FIRST_SECONDS
        for connection in self._connections:
            if connection.transport.is_closing():
                continue
            fresh = connection.waiting_since is not None
            if connection.answering or elapsed >= (FIRST_SECONDS if fresh else GRACE_SECONDS):
                connection.shutdown()
            owing = owing or not connection.transport.is_closing()
        return not owing

    async def _until(self, reached: Callable[[], bool], seconds: float) -> None:
        """Waits for something that uvicorn has no event for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not reached():  # noqa: ASYNC110 - its set of connections tells nobody
                    await asyncio.sleep(_TICK)
