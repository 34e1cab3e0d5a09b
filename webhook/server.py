"""Serve the application with uvicorn, within limits and with a shutdown that loses no request."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import Final, NoReturn

import structlog
import uvicorn
from starlette.types import ASGIApp

from services.process.outage import Outage
from services.process.text import plain
from webhook.connections import Connection, Connections, EvictionReason, Phase
from webhook.protocol import BoundedApp, BoundedProtocol

SOCKET_BUFFER: Final = 16 * 1024
"""The kernel's receive and send buffers of a connection; Linux doubles the number. Until it closes,
TLS keeps buffers as large as what has arrived at once."""
IDLE_SECONDS: Final = 0.5
"""For idle clients at shutdown: a request may be on its way."""
FIRST_SECONDS: Final = 3.0
"""For clients to begin their first request at shutdown."""
BEGUN_SECONDS: Final = 10.0
"""For requests that have begun to be answered at shutdown."""
QUIET_SECONDS: Final = 60.0
"""Time without a refused client after which the next one is logged."""

log = structlog.get_logger(component="server")


class ClientRefusal(StrEnum):
    """Why a client is refused where `--client-ca` is set; the values are metric labels."""

    BAD_CERTIFICATE = "bad-certificate"
    """The handshake failed: the client's certificate is not of these CAs."""
    NO_CERTIFICATE = "no-certificate"
    """The handshake failed: the client has no certificate."""


class AdmissionServer(uvicorn.Server):
    """A uvicorn server that its owner stops with `should_exit`, not signals.

    Attributes:
        draining: Whether answers ask clients to reconnect, to another replica.
        refused: Clients without a valid certificate, by reason.
    """

    def __init__(
        self,
        app: ASGIApp,
        context: ssl.SSLContext,
        connections: Connections | None = None,
    ) -> None:
        self.connections = Connections() if connections is None else connections
        self.draining = False
        self.refused: dict[str, int] = dict.fromkeys(ClientRefusal, 0)
        config = uvicorn.Config(
            BoundedApp(app, self.connections, lambda: self.draining),
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            # Above the 90 s of the API server's client, which does not repeat a POST when its
            # connection is closed at that moment.
            timeout_keep_alive=120,
            callback_notify=self._check_times,
            timeout_notify=1,
        )
        super().__init__(config)
        self._context = context
        self._refusing = Outage(
            log,
            "client refused: its certificate must be of a CA in --client-ca",
            "no client is refused any more",
            clock=self.connections.clock,
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: the process has its own handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept from the only socket; uvicorn itself gets none."""
        await super().startup([])
        (listener,) = sockets or []
        listener.settimeout(0)
        # Accepted sockets inherit these. 400 of them may be full.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        self._accepting = asyncio.create_task(self._accept_forever(listener))
        self._accepting.add_done_callback(self._exit)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, answer what has begun, and end."""
        # uvicorn would close connections at once, even while a request arrives.
        (listener,) = sockets or []
        self.draining = True  # each answer is the last one of its connection
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        with contextlib.suppress(OSError):  # clients that the kernel has accepted already
            while not self.connections.full and self._accept(listener):
                pass
        listener.close()
        in_phase = self.connections.in_phase
        for waits_for, seconds in (
            (partial(in_phase, Phase.IDLE), IDLE_SECONDS),
            (partial(in_phase, Phase.HANDSHAKE, Phase.HEAD), FIRST_SECONDS),
            (self.connections.begun, BEGUN_SECONDS),
        ):
            while waits_for() and loop.time() < begun + seconds:  # noqa: ASYNC110 - rare
                await asyncio.sleep(0.02)
        if unanswered := self.connections.begun():
            log.warning("closed connections with unanswered requests", number=len(unanswered))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):  # for clients to read their answers and close
                await super().shutdown(sockets)
        for connection in self.connections.in_phase(*Phase):
            connection.close()

    def count_refused(self, error: ssl.SSLError) -> None:
        """Count a client without a valid certificate."""
        if isinstance(error, ssl.SSLCertVerificationError):
            reason, problem = ClientRefusal.BAD_CERTIFICATE, error.verify_message
        elif getattr(error, "reason", "") == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            reason = ClientRefusal.NO_CERTIFICATE
            problem = "the client showed no certificate"
        else:
            return
        self.refused[reason] += 1
        self._refusing.failed(reason, detail=plain(problem), refused=dict(self.refused))

    async def _check_times(self) -> None:
        self.connections.close_slow()
        self._refusing.ended_if_quiet(QUIET_SECONDS)

    def _exit(self, _accepting: "asyncio.Task[NoReturn]") -> None:
        self.should_exit = True  # nothing is accepted any more

    async def _accept_forever(self, listener: socket.socket) -> NoReturn:
        outage = Outage(log, "can't accept connections", "accepting connections again")
        while True:
            await _readable(listener)
            try:
                self._accept(listener)
                outage.ended()
            except OSError as error:  # usually no file descriptors are left
                outage.failed(str(error))
                self.connections.make_room(EvictionReason.CONNECTIONS)
                # The listener stays readable: without a pause this would be a busy loop.
                await asyncio.sleep(0.05)

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a client that has connected, if there is one; its handshake is a task."""
        try:
            accepted, (client, *_) = listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionError:  # the client has gone already
            return True
        connection = self.connections.add(client)
        task = asyncio.create_task(self._connect(connection, accepted))
        connection.close = task.cancel
        return True

    async def _connect(self, connection: Connection, accepted: socket.socket) -> None:
        """Do the TLS handshake; then uvicorn's protocol has the connection."""
        # uvicorn itself learns of a connection only after its handshake, so it could count none of
        # those that wait in it.
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: BoundedProtocol(
                    self.connections,
                    connection,
                    config=self.config,
                    server_state=self.server_state,
                ),
                accepted,
                ssl=self._context,
                ssl_shutdown_timeout=5,
            )
        except ssl.SSLError as error:
            self.count_refused(error)
        except OSError as error:
            log.debug("no TLS connection", reason=str(error))
        finally:
            if connection.phase is Phase.HANDSHAKE:
                self.connections.remove(connection)
                accepted.close()


async def _readable(waited: socket.socket) -> None:
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(waited, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(waited)
