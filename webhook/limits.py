"""One connection within the limits of all: what uvicorn has no bounds for.

`webhook.ledger` decides which connections are closed to make room for others; here is what tells it
of each connection, and closes those that it names. `webhook.acceptor` brings the connections.
"""

import asyncio
import contextlib
import socket
from typing import Any, Final

import structlog

from webhook.clients import Clients
from webhook.direct import DirectProtocol
from webhook.ledger import ConnectionLedger, Evicted, EvictionLog, EvictionReason, Limits

PAUSED_BYTES: Final = 512 * 1024
"""What TLS may take in, with room to grow, of a client that isn't listened to for a moment."""
PIECE_BYTES: Final = 64
"""What Python needs for each piece of a body, however short."""

log = structlog.get_logger(room="server")


class ConnectionLimiter:
    """Counts the connections of a server and closes those that must go.

    Args:
        clients: Tells who may ask; None if everybody may.
        limits: Bounds for all connections together.
    """

    def __init__(self, clients: Clients | None = None, limits: Limits | None = None) -> None:
        self.clients = clients
        self.ledger: ConnectionLedger[LimitedProtocol] = ConnectionLedger(limits or Limits())
        self.evictions = EvictionLog()

    @property
    def limits(self) -> Limits:
        """Bounds for all connections together."""
        return self.ledger.limits

    def evict(self, evicted: "Evicted[LimitedProtocol]") -> None:
        """Closes connections that the ledger named, at once."""
        for connection, reason in evicted:
            self.count(reason, connection)
            connection.abort()

    def count(self, reason: EvictionReason, connection: "LimitedProtocol") -> None:
        """Counts a connection that is closed; logs the first of a series."""
        if self.evictions.count(reason, connection.loop.time()):
            log.warning(
                "closing connections to stay within limits",
                reason=reason,
                connections=self.ledger.connections,
                handshakes=self.ledger.handshakes,
                held_bytes=self.ledger.held_bytes,
                client=str(connection.client),
            )

    def log_end(self, now: float) -> None:
        """Logs that a series of evictions is over."""
        if closed := self.evictions.ended(now):
            log.warning("connections are within limits again", closed=closed)


class LimitedProtocol(DirectProtocol):
    """One connection.

    Attributes:
        limiter: Of all connections of the server.
        secured: Whether the TLS handshake is done.
        waiting_since: The loop's time when the client last owed something: a request, the rest of
            one, or reading an answer. None while it owes nothing.
    """

    limiter: ConnectionLimiter
    secured: bool = False
    waiting_since: float | None = None

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(**options)
        self._accepted: socket.socket | None = None
        self._arriving = False
        self._may_ask = True

    def accept(self, connected: socket.socket) -> None:
        """A client has connected; its TLS handshake comes next."""
        self._accepted = connected
        self.limiter.evict(self.limiter.ledger.open(self))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """The handshake is done; a request should follow."""
        super().connection_made(transport)
        self.secured = True
        self.waiting_since = self.loop.time()
        clients = self.limiter.clients
        refusal = clients.refusal(transport) if clients else None
        if clients and refusal:
            self._may_ask = False
            self.gate, self.app = None, clients.guarded(self.app, refusal)
        self.limiter.ledger.secure(self, known=bool(clients and not refusal))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is no more, and neither is what it held."""
        self.limiter.ledger.close(self)
        super().connection_lost(exc)
        self.forget_body()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.limiter.evict(self.limiter.ledger.buffer(self, len(data)))
        super().data_received(data)
        if self.flow.read_paused:
            self._hold(PAUSED_BYTES)

    def abort(self) -> None:
        """Closes at once, whatever is unfinished."""
        if self.secured:
            self.transport.abort()
        elif self._accepted is not None:  # the event loop finds its end, and gives up the handshake
            with contextlib.suppress(OSError):
                self._accepted.shutdown(socket.SHUT_RDWR)

    def on_message_begin(self) -> None:
        """The first bytes of a request."""
        super().on_message_begin()
        self._arriving = True
        self.waiting_since = self.loop.time()
        self.limiter.ledger.begin(self)

    def on_headers_complete(self) -> None:
        """The head has its end; a client that doesn't wait for answers is cut off."""
        if len(self.pipeline) >= self.limiter.limits.pipelined and not self.transport.is_closing():
            self.limiter.ledger.close(self)
            self.limiter.count(EvictionReason.PIPELINED, self)
            self.abort()
        if self.transport.is_closing():
            raise ConnectionAbortedError  # which ends parsing: nobody reads what would be answered
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Content, which is kept unless its request was answered already."""
        super().on_body(body)
        if self.endpoint or not self.cycle.response_complete:
            self._hold(len(body) + PIECE_BYTES)

    def on_message_complete(self) -> None:
        """The last bytes of a request.

        One that was answered before (too large) has used up uvicorn's keep-alive timer, so the
        next one is waited for as after a handshake.
        """
        direct = bool(self.endpoint)
        super().on_message_complete()
        self._arriving = False
        self.waiting_since = None if direct or self.answering else self.loop.time()
        if direct:
            self._finish()

    def on_response_complete(self) -> None:
        """An answer is complete, be it before the end of its request."""
        super().on_response_complete()
        if not self._arriving and not self.pipeline:
            self._finish()

    def pause_writing(self) -> None:
        """The client doesn't read its answers."""
        super().pause_writing()
        self.waiting_since = self.loop.time()
        self._hold(self.transport.get_write_buffer_size() + PAUSED_BYTES)

    def resume_writing(self) -> None:
        """It has read them."""
        super().resume_writing()
        if not self._arriving:
            self.waiting_since = None
            if not self.answering:
                self._finish()

    def _hold(self, size: int) -> None:
        self.limiter.evict(self.limiter.ledger.hold(self, size))

    def _finish(self) -> None:
        if not self.flow.write_paused:
            self.limiter.evict(self.limiter.ledger.finish(self, known=self._may_ask))
