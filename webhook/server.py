"""Serve the application with uvicorn, with limits and a shutdown that loses no request.

An event loop's TLS listener reports a connection only after its handshake, and uvicorn has no time
limit for a handshake or a request that does not end. Here connections are accepted one by one and
counted, `loop.connect_accepted_socket` does the handshake, and `sweep` checks deadlines once a
second. uvicorn also closes connections at once when it stops, even while a request arrives. Here
every client that has a connection gets an answer, in these steps:

1. Clients that have connected are accepted, and the listening socket closes.
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

from services.process.text import plain
from webhook.connections import ConnectionLimiter, Limits
from webhook.limits import LimitedProtocol

KEEP_ALIVE: Final = 120
"""Seconds; above the 90 of the API server's client, which does not repeat a POST when its
connection is closed at that moment."""
RECEIVE_BUFFER: Final = 64 * 1024
"""The kernel's receive buffer of a connection (it doubles the number), and so the most data that
arrives at once: TLS keeps a buffer of that size until the connection closes."""
MAX_HELLO: Final = 8 * 1024
"""Bytes of a ClientHello, the first message of TLS. Clients send up to 2 KiB; OpenSSL would keep
128 KiB."""
_HELLO_HEAD: Final = 9
"""Bytes up to the length of a ClientHello (RFC 8446, 4 and 5.1); they arrive in one piece."""
RETRY_SECONDS: Final = 1.0
"""Pause after a failure to accept, usually for lack of file descriptors."""
CLOSING_SECONDS: Final = 5.0
"""Time for closing TLS."""
GRACE_SECONDS: Final = 0.5
"""At shutdown, time for the next request on a connection that has sent some."""
FIRST_SECONDS: Final = 3.0
"""At shutdown, time for handshake and first request of a new connection."""
GOODBYE_SECONDS: Final = 1.0
"""At shutdown, time for clients to close connections that we have closed."""
END_SECONDS: Final = 10.0
"""At shutdown, time for answering requests that have arrived."""
_TICK: Final = 0.02
REFUSAL_LOG_SECONDS: Final = 60.0
"""Shortest time between two log lines about refused clients."""
_NO_CERTIFICATE: Final = "no-certificate"
_BAD_CERTIFICATE: Final = "bad-certificate"

CLIENT_REFUSALS: Final = {
    _BAD_CERTIFICATE: "The handshake failed: the client's certificate is not of these CAs.",
    _NO_CERTIFICATE: "The handshake failed: the client has no certificate.",
}
"""Why clients are refused where `--client-ca` is set; the keys are metric labels."""

log = structlog.get_logger(component="server")


class AdmissionServer(uvicorn.Server):
    """A uvicorn server that its owner stops with `should_exit`, not signals.

    Attributes:
        last_accepted: When it accepted a client, by the limiter's clock; 0 before the first one.
        refused: Clients without a valid certificate, by reason.
    """

    def __init__(
        self, app: Callable[..., Any], context: ssl.SSLContext, limits: Limits | None = None
    ) -> None:
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
        self.limiter = ConnectionLimiter(limits)
        self.last_accepted = 0.0
        self.refused = dict.fromkeys(CLIENT_REFUSALS, 0)
        self.listening = asyncio.Event()
        self._context = context
        self._accepting: asyncio.Task[NoReturn] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._refusal_logged = -REFUSAL_LOG_SECONDS

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: the process has its own handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept from the only socket, and set `listening`; uvicorn itself gets no sockets."""
        await super().startup([])
        (listener,) = sockets or []
        self._accepting = asyncio.create_task(self._accept_forever(listener))
        self._accepting.add_done_callback(self._exit)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, answer what has arrived, and end."""
        (listener,) = sockets or []
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        with contextlib.suppress(OSError):
            # Clients may connect faster than this accepts, so only as many as there is room for.
            for _ in range(self.limiter.limits.handshakes):
                if self.limiter.seconds_until_room() > 0 or not self._accept(listener):
                    break
        listener.close()
        clock = self.limiter.clock
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

    def count_refused(self, error: ssl.SSLError) -> None:
        """Count a client without a valid certificate; log at most one a minute."""
        if isinstance(error, ssl.SSLCertVerificationError):
            reason, problem = _BAD_CERTIFICATE, error.verify_message
        elif getattr(error, "reason", "") == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            reason, problem = _NO_CERTIFICATE, "the client showed no certificate"
        else:
            return
        self.refused[reason] += 1
        now = self.limiter.clock()
        if now - self._refusal_logged >= REFUSAL_LOG_SECONDS:
            self._refusal_logged = now
            log.warning(
                "client refused: its certificate must be of a CA in --client-ca",
                reason=reason,
                detail=plain(problem),
                refused=dict(self.refused),
            )

    @property
    def _protocols(self) -> list[LimitedProtocol]:
        return cast("list[LimitedProtocol]", list(self.server_state.connections))

    def _exit(self, _accepting: "asyncio.Task[NoReturn]") -> None:
        self.should_exit = True  # nothing is accepted any more

    async def _accept_forever(self, listener: socket.socket) -> NoReturn:
        """Accept clients; wait while all others are too young to be pushed out."""
        listener.settimeout(0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        failing = False
        while True:
            await _wait_readable(listener)
            if (seconds := self.limiter.seconds_until_room()) > 0:
                await asyncio.sleep(seconds)
                continue
            try:
                self._accept(listener)
                failing = False
            except OSError as error:
                if not failing:
                    log.error(  # noqa: TRY400 - a known cause
                        "can't accept connections", reason=str(error), retry=RETRY_SECONDS
                    )
                failing = True
                await asyncio.sleep(RETRY_SECONDS)

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a client that has connected, if there is one; its handshake is a task."""
        try:
            accepted, (client, *_) = listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionError:  # the client has gone already
            return True
        self.last_accepted = self.limiter.clock()
        protocol = LimitedProtocol(
            self.limiter,
            accepted,
            client,
            config=self.config,
            server_state=self.server_state,
            app_state={},
        )
        task = asyncio.create_task(self._connect(protocol, accepted))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)
        return True

    async def _connect(self, protocol: LimitedProtocol, accepted: socket.socket) -> None:
        """Do the TLS handshake; then the protocol gets the connection."""
        try:
            await _check_hello(accepted)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._context,
                ssl_shutdown_timeout=CLOSING_SECONDS,
            )
        except ssl.SSLError as error:
            self.count_refused(error)
        except OSError as error:
            log.debug("no TLS connection", reason=str(error))
        finally:
            if not protocol.connection.secured:
                self.limiter.close(protocol.connection)
                with contextlib.suppress(OSError):
                    accepted.close()

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


async def _check_hello(accepted: socket.socket) -> None:
    """Wait for the first bytes, so that clients that send nothing cost no TLS memory.

    Raises:
        ConnectionAbortedError: They are no ClientHello, or it is too long.
    """
    await _wait_readable(accepted)
    head = accepted.recv(_HELLO_HEAD, socket.MSG_PEEK)
    if len(head) < _HELLO_HEAD or int.from_bytes(head[6:]) > MAX_HELLO:
        raise ConnectionAbortedError("a ClientHello that is cut off, or too long")


async def _wait_readable(waited: socket.socket) -> None:
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(waited, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(waited)
