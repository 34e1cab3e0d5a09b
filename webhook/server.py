"""Serve the application with uvicorn, with limits and a shutdown that loses no request.

uvicorn has no time limit for a handshake or a request that does not end; `AdmissionServer.sweep`
checks deadlines once a second. And uvicorn closes connections at once when it stops, even while a
request arrives. Here every client that has a connection gets an answer, in these steps:

1. Clients that have connected are accepted, and the listening sockets close.
2. Requests are answered, each as the last one of its connection. A connection that has not sent its
   first request yet has `FIRST_SECONDS` for handshake and request; others have `GRACE_SECONDS`.
3. Clients have `GOODBYE_SECONDS` to read their answers and close.
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
from webhook.connections import ConnectionLimiter, Limits
from webhook.limits import LimitedProtocol

KEEP_ALIVE: Final = 120
"""Seconds; above the 90 of the API server's client, which does not repeat a POST when its
connection is closed at that moment."""
GRACE_SECONDS: Final = 0.5
"""At shutdown, time for the next request on a connection that has sent some."""
FIRST_SECONDS: Final = 3.0
"""At shutdown, time for handshake and first request of a new connection."""
GOODBYE_SECONDS: Final = 1.0
"""At shutdown, time for clients to close connections that we have closed."""
END_SECONDS: Final = 10.0
"""At shutdown, time for answering requests that have arrived."""
_TICK: Final = 0.02

log = structlog.get_logger(room="server")


class AdmissionServer(uvicorn.Server):
    """A uvicorn server that its owner stops with `should_exit`, not signals.

    Args:
        app: The ASGI application.
        context: TLS.
        limits: Limits for all clients together.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        context: ssl.SSLContext,
        *,
        limits: Limits | None = None,
    ) -> None:
        self.limiter = ConnectionLimiter(limits)
        self.acceptor = Acceptor(context, self.limiter, self._create_protocol)
        config = uvicorn.Config(
            app,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=1,  # `shutdown` has waited already
        )
        super().__init__(config)
        self.listening = asyncio.Event()
        self.listener: socket.socket | None = None
        self._accepting: asyncio.Task[NoReturn] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: the process has its own handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept from the only socket, and set `listening`; uvicorn itself gets no sockets."""
        await super().startup([])
        (self.listener,) = sockets or []
        self._accepting = asyncio.create_task(self.acceptor.accept_forever(self.listener))
        self._accepting.add_done_callback(self._exit)
        self.listening.set()

    async def shutdown(
        self,
        sockets: list[socket.socket] | None = None,  # noqa: ARG002 - the acceptor has it
    ) -> None:
        """Accept no more connections, answer what has arrived, and end."""
        await self._stop_accepting()
        clock = asyncio.get_running_loop().time
        begun = clock()
        await self._until(lambda: self._finished(clock() - begun), END_SECONDS)
        await self._until(lambda: not self._protocols, GOODBYE_SECONDS)
        left = [protocol for protocol in self._protocols if protocol.answering]
        if left:
            log.warning("closed connections with unanswered requests", number=len(left))
        for protocol in self._protocols:
            protocol.transport.abort()
        await super().shutdown([])

    async def sweep(self, interval: float = 1.0) -> NoReturn:
        """Close connections past their deadline, until cancelled."""
        while True:
            await asyncio.sleep(interval)
            self.limiter.sweep()

    @property
    def _protocols(self) -> list[LimitedProtocol]:
        return cast("list[LimitedProtocol]", list(self.server_state.connections))

    def _create_protocol(self, accepted: socket.socket, client: str) -> LimitedProtocol:
        return LimitedProtocol(
            self.limiter,
            accepted,
            client,
            config=self.config,
            server_state=self.server_state,
            app_state={},
        )

    def _exit(self, _accepting: "asyncio.Task[NoReturn]") -> None:
        self.should_exit = True  # nothing is accepted any more

    async def _stop_accepting(self) -> None:
        """Accept the clients that have connected, and close the listening socket."""
        if self.listener is None or self._accepting is None:
            return
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        with contextlib.suppress(OSError):
            while self.acceptor.accept(self.listener):
                pass
        self.listener.close()

    def _finished(self, elapsed: float) -> bool:
        """Close what may be closed after so many seconds; return whether nothing is left."""
        owing = bool(self.limiter.handshakes) and elapsed < FIRST_SECONDS
        for protocol in self._protocols:
            if protocol.transport.is_closing():
                continue
            fresh = protocol.connection.deadline is not None
            if protocol.answering or elapsed >= (FIRST_SECONDS if fresh else GRACE_SECONDS):
                protocol.shutdown()
            owing = owing or not protocol.transport.is_closing()
        return not owing

    async def _until(self, reached: Callable[[], bool], seconds: float) -> None:
        """Wait for a condition that uvicorn has no event for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not reached():  # noqa: ASYNC110 - uvicorn reports no change
                    await asyncio.sleep(_TICK)
