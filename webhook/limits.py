"""Limit what one connection can make the process hold; uvicorn has no such limits.

`LimitedProtocol` subclasses uvicorn's HTTP protocol; `webhook.server` passes it with uvicorn's
`http` option. It counts what a client makes the process hold and reports it to `webhook.ledger`,
which decides which connections are closed. `webhook.acceptor` accepts the connections.

The head of a request is limited here too: uvicorn's parser keeps request line, headers and
trailers, copies a long line with each piece that arrives, and takes microseconds for each chunk, so
a body in chunks of a byte would keep the process busy. Bytes count from the end of a head to the
end of its request, without the content of the body.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import Any, Final

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from services.process.text import plain
from webhook.handler import status_body
from webhook.ledger import ConnectionLedger, Evicted, EvictionLog, EvictionReason, Limits

MAX_HEAD: Final = 16 * 1024
"""Bytes of a request before its body, around all its chunks, and after it. The API server sends
about 300, and no chunks."""
MAX_HEADERS: Final = 100
"""Headers of a request, including trailers; the API server sends six."""
HEADER_BYTES: Final = 170
"""Python objects for each header besides its text: a tuple and two bytes objects."""
PAUSED_BYTES: Final = 512 * 1024
"""Data that TLS may receive, with spare room, while reading from a client is paused."""
PIECE_BYTES: Final = 64
"""Python objects for each piece of a body, however short."""
LEAST_SECONDS: Final = 1.0
"""How long each connection has for its handshake and request before a new one may push it out. New
ones wait in the kernel's queue until then, so a flood can't push out an API server's connection
before its request has arrived."""
LAST_WORD_SECONDS: Final = 1.0
"""Time for a refused client to read why. Closing TLS alone would wait much longer, and receive
whatever the client sends until then."""
REFUSAL_LOG_SECONDS: Final = 60.0
"""Shortest time between two log lines about refused clients."""
_PARSED_BYTES: Final = 4 * 1024
"""Bytes that are parsed at a time; a head may exceed `MAX_HEAD` by as much."""
_NO_CERTIFICATE: Final = "no-certificate"
_BAD_CERTIFICATE: Final = "bad-certificate"

CLIENT_REFUSALS: Final = {
    _BAD_CERTIFICATE: "The handshake failed: the client's certificate is not of these CAs.",
    _NO_CERTIFICATE: "The handshake failed: the client has no certificate.",
}
"""Why clients are refused where `--client-ca` is set; the keys are metric labels."""

log = structlog.get_logger(room="server")


class ConnectionLimiter:
    """Counts the connections of a server, and closes connections at a limit.

    Args:
        limits: Limits for all connections together.

    Attributes:
        refused: Clients without a valid certificate, by reason.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.ledger: ConnectionLedger[LimitedProtocol] = ConnectionLedger(limits)
        self.evictions = EvictionLog()
        self.refused = dict.fromkeys(CLIENT_REFUSALS, 0)
        self._refusal_logged = -REFUSAL_LOG_SECONDS

    @property
    def limits(self) -> Limits:
        """Limits for all connections together."""
        return self.ledger.limits

    def seconds_until_room(self, now: float) -> float:
        """Return how long the next connection must wait before it may push out another one."""
        leaving = self.ledger.first_to_go()
        return 0.0 if leaving is None else leaving[0].accepted_at + LEAST_SECONDS - now

    def evict(self, evicted: "Evicted[LimitedProtocol]") -> None:
        """Close connections at once, and count them; log the first of a series."""
        for connection, reason in evicted:
            self.ledger.close(connection)
            connection.abort()
            self._count(reason, connection)

    def sweep(self, now: float) -> None:
        """Close connections past their deadline; log the end of a series of closed connections."""
        late = [each for each in self.ledger if each.deadline is not None and now > each.deadline]
        self.evict([(connection, EvictionReason.SLOW) for connection in late])
        if closed := self.evictions.ended(now):
            log.warning("connections are within limits again", closed=closed)

    def _count(self, reason: EvictionReason, connection: "LimitedProtocol") -> None:
        if self.evictions.count(reason, connection.loop.time()):
            log.warning(
                "closing connections to stay within limits",
                reason=reason,
                connections=self.ledger.connections,
                handshakes=self.ledger.handshakes,
                held_bytes=self.ledger.held_bytes,
                client=str(connection.client),
            )

    def count_refused(self, error: ssl.SSLError, now: float) -> None:
        """Count a client without a valid certificate; log at most one a minute."""
        if isinstance(error, ssl.SSLCertVerificationError):
            reason, problem = _BAD_CERTIFICATE, error.verify_message
        elif getattr(error, "reason", "") == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            reason, problem = _NO_CERTIFICATE, "the client showed no certificate"
        else:
            return
        self.refused[reason] += 1
        if now - self._refusal_logged >= REFUSAL_LOG_SECONDS:
            self._refusal_logged = now
            log.warning(
                "client refused: its certificate must be of a CA in --client-ca",
                reason=reason,
                detail=plain(problem),
                refused=dict(self.refused),
            )


class LimitedProtocol(HttpToolsProtocol):
    """One connection.

    Args:
        limiter: Of all connections of the server.
        options: As uvicorn creates its protocol.

    Attributes:
        accepted_at: The loop's time when the client was accepted.
        secured: Whether the TLS handshake is done.
        overhead: Bytes of a head so far, or since its end without the content of the body.
        headers_seen: Headers of the current request.
        deadline: The loop's time until which the client must have done what it owes: a handshake, a
            request, the rest of one, or reading an answer. None while it owes nothing.
    """

    def __init__(self, limiter: ConnectionLimiter, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(**options)
        self.limiter = limiter
        self.accepted_at = 0.0
        self.secured = False
        self.overhead = 0
        self.headers_seen = 0
        self.deadline: float | None = None
        self._accepted: socket.socket | None = None
        self._arriving = False
        self._paused = False
        self._header_bytes = 0

    @property
    def answering(self) -> bool:
        """Whether a request is being read or answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def accept(self, connected: socket.socket) -> None:
        """Start counting a client that has connected; its TLS handshake comes next."""
        self._accepted = connected
        self.accepted_at = self.loop.time()
        self.deadline = self.accepted_at + self.limiter.limits.handshake_seconds
        self.limiter.evict(self.limiter.ledger.open(self))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """Start waiting for a request, after the handshake."""
        super().connection_made(transport)
        self.secured = True
        self._wait()
        verified = bool(transport.get_extra_info("peercert"))
        if verified and transport.get_extra_info("ssl_object").session_reused:
            # The CA that verified the session's first handshake may have been removed since.
            transport.abort()
        self.limiter.ledger.secure(self, known=verified)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection held.

        A timer that stays would keep all of it alive, TLS included. uvicorn leaves its keep-alive
        timer (120 s) running after a connection that the client has reset.
        """
        self.limiter.ledger.close(self)
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse bytes that arrived; a connection that is being closed drops them."""
        self.limiter.evict(self.limiter.ledger.buffer(self, len(data)))
        for at in range(0, len(data), _PARSED_BYTES):
            if self.transport.is_closing():
                return
            piece = data[at : at + _PARSED_BYTES]
            self.overhead += len(piece)
            super().data_received(piece)  # its events reset the count
            if self.overhead:  # headers or trailers that have not ended yet, or chunks
                self._hold(self._header_bytes)
                self._header_bytes = 0
            if self.overhead > MAX_HEAD or self.headers_seen > MAX_HEADERS:
                self._refuse_head()
        if self.flow.read_paused and not self._paused:
            self._paused = True
            self._hold(PAUSED_BYTES)

    def abort(self) -> None:
        """Close at once."""
        if self.secured:
            self.transport.abort()
        elif self._accepted is not None:  # the event loop sees the end and fails the handshake
            with contextlib.suppress(OSError):
                self._accepted.shutdown(socket.SHUT_RDWR)

    def on_message_begin(self) -> None:
        """Handle the first bytes of a request."""
        super().on_message_begin()
        self.headers_seen = self._header_bytes = 0
        self._arriving = True
        self._wait()
        self.limiter.ledger.start(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header or trailer."""
        self.headers_seen += 1
        if self.headers_seen > MAX_HEADERS:
            return  # refused once this piece is parsed; until then nothing more is stored
        super().on_header(name, value)
        self._header_bytes += HEADER_BYTES + len(name) + len(value)

    def on_headers_complete(self) -> None:
        """Handle the end of a head; close a client that does not wait for answers."""
        self.overhead = 0
        if len(self.pipeline) >= self.limiter.limits.pipelined and not self.transport.is_closing():
            self.limiter.evict([(self, EvictionReason.PIPELINED)])
        if self.transport.is_closing():
            raise ConnectionAbortedError  # ends parsing: nobody would read the answers
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count content, which is stored unless its request was answered already."""
        self.overhead = max(0, self.overhead - len(body))
        super().on_body(body)
        if self.answering:
            self._hold(len(body) + PIECE_BYTES)

    def on_message_complete(self) -> None:
        """Handle the last bytes of a request.

        If it was answered before its end (too large), uvicorn's keep-alive timer was started and
        stopped already, so the next request has a time limit as after a handshake.
        """
        self.overhead = 0
        super().on_message_complete()
        self._arriving = False
        if self.answering:
            self.deadline = None
        else:
            self._wait()

    def on_response_complete(self) -> None:
        """Handle the end of an answer, which may come before the end of its request."""
        super().on_response_complete()
        if not self._arriving and not self.pipeline:
            self._finish()

    def pause_writing(self) -> None:
        """Start a time limit for a client that does not read its answers."""
        super().pause_writing()
        self._wait()
        self._hold(self.transport.get_write_buffer_size() + PAUSED_BYTES)

    def resume_writing(self) -> None:
        """Stop the time limit: the client has read its answers."""
        super().resume_writing()
        if not self._arriving:
            self.deadline = None
            if not self.answering:
                self._finish()

    def _wait(self) -> None:
        """Give the client time for what it owes."""
        self.deadline = self.loop.time() + self.limiter.limits.request_seconds

    def _hold(self, size: int) -> None:
        self.limiter.evict(self.limiter.ledger.hold(self, size))

    def _finish(self) -> None:
        if not self.flow.write_paused:
            self._paused = False
            self.limiter.evict(self.limiter.ledger.finish(self))

    def _refuse_head(self) -> None:
        """Answer 431 and close; only close if the answer to an earlier request is due first."""
        log.info("request line or headers too long", client=str(self.client))
        self.headers_seen = 0
        if self.answering and (self.cycle.response_started or not self.cycle.more_body):
            self.transport.abort()  # the client would take a 431 for the answer that is due
            return
        message = (
            f"request line, headers, trailers and what surrounds chunks may have at most {MAX_HEAD}"
            f" bytes, and {MAX_HEADERS} headers"
        )
        body = status_body(431, message)
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
        self.deadline = self.loop.time() + LAST_WORD_SECONDS
