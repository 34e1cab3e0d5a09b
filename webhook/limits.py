"""Limit what one connection can make the process hold; uvicorn has no such limits.

`LimitedProtocol` subclasses uvicorn's HTTP protocol; `webhook.server` passes it with uvicorn's
`http` option. It reports what a client makes the process hold to `webhook.connections`, which
decides which connections are closed.

The head of a request is limited here too: uvicorn's parser keeps request line, headers and
trailers, copies a long line with each piece that arrives, and takes microseconds for each chunk, so
a body in chunks of a byte would keep the process busy. Bytes count from the end of a head to the
end of its request, without the content of the body.
"""

import asyncio
import contextlib
import socket
from typing import Any, Final

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from webhook.connections import ConnectionLimiter, EvictionReason
from webhook.handler import status_body

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
LAST_WORD_SECONDS: Final = 1.0
"""Time for a refused client to read why. Closing TLS alone would wait much longer, and receive
whatever the client sends until then."""
_PARSED_BYTES: Final = 4 * 1024
"""Bytes that are parsed at a time; a head may exceed `MAX_HEAD` by as much."""

log = structlog.get_logger(component="server")


class LimitedProtocol(HttpToolsProtocol):
    """One connection, from when it was accepted.

    Args:
        limiter: Of all connections of the server.
        accepted: The socket; its TLS handshake comes next.
        client: Its address.
        options: As uvicorn creates its protocol.
    """

    def __init__(
        self,
        limiter: ConnectionLimiter,
        accepted: socket.socket,
        client: str,
        **options: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        super().__init__(**options)
        self.limiter = limiter
        self.connection = limiter.open(client, self._abort)
        self.overhead = 0
        """Bytes of a head so far, or since its end without the content of the body."""
        self._accepted = accepted
        self._arriving = False
        self._paused = False
        self._headers = 0
        self._header_bytes = 0

    @property
    def answering(self) -> bool:
        """Whether a request is being read or answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """Start waiting for a request, after the handshake."""
        super().connection_made(transport)
        verified = bool(transport.get_extra_info("peercert"))
        self.limiter.secure(self.connection, known=verified)
        if verified and transport.get_extra_info("ssl_object").session_reused:
            # The CA that verified the session's first handshake may have been removed since.
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection held.

        A timer that stays would keep all of it alive, TLS included. uvicorn leaves its keep-alive
        timer (120 s) running after a connection that the client has reset.
        """
        self.limiter.close(self.connection)
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse bytes that arrived; a connection that is being closed drops them."""
        self.limiter.buffer(self.connection, len(data))
        for at in range(0, len(data), _PARSED_BYTES):
            if self.transport.is_closing():
                return
            piece = data[at : at + _PARSED_BYTES]
            self.overhead += len(piece)
            super().data_received(piece)  # its events reset the count
            if self.overhead:  # headers or trailers that have not ended yet, or chunks
                self.limiter.hold(self.connection, self._header_bytes)
                self._header_bytes = 0
            if self.overhead > MAX_HEAD or self._headers > MAX_HEADERS:
                self._refuse_head()
        if self.flow.read_paused and not self._paused:
            self._paused = True
            self.limiter.hold(self.connection, PAUSED_BYTES)

    def on_message_begin(self) -> None:
        """Handle the first bytes of a request."""
        super().on_message_begin()
        self._headers = self._header_bytes = 0
        self._arriving = True
        self.limiter.start(self.connection)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header or trailer."""
        self._headers += 1
        if self._headers > MAX_HEADERS:
            return  # refused once this piece is parsed; until then nothing more is stored
        super().on_header(name, value)
        self._header_bytes += HEADER_BYTES + len(name) + len(value)

    def on_headers_complete(self) -> None:
        """Handle the end of a head; close a client that does not wait for answers."""
        self.overhead = 0
        if len(self.pipeline) >= self.limiter.limits.pipelined and not self.transport.is_closing():
            self.limiter.evict(self.connection, EvictionReason.PIPELINED)
        if self.transport.is_closing():
            raise ConnectionAbortedError  # ends parsing: nobody would read the answers
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count content, which is stored unless its request was answered already."""
        self.overhead = max(0, self.overhead - len(body))
        super().on_body(body)
        if self.answering:
            self.limiter.hold(self.connection, len(body) + PIECE_BYTES)

    def on_message_complete(self) -> None:
        """Handle the last bytes of a request.

        If it was answered before its end (too large), uvicorn's keep-alive timer was started and
        stopped already, so the next request has a time limit as after a handshake.
        """
        self.overhead = 0
        super().on_message_complete()
        self._arriving = False
        if self.answering:
            self.connection.deadline = None
        else:
            self.limiter.await_client(self.connection)

    def on_response_complete(self) -> None:
        """Handle the end of an answer, which may come before the end of its request."""
        super().on_response_complete()
        if not self._arriving and not self.pipeline:
            self._finish()

    def pause_writing(self) -> None:
        """Start a time limit for a client that does not read its answers."""
        super().pause_writing()
        self.limiter.await_client(self.connection)
        unread = self.transport.get_write_buffer_size() + PAUSED_BYTES
        self.limiter.hold(self.connection, unread)

    def resume_writing(self) -> None:
        """Stop the time limit: the client has read its answers."""
        super().resume_writing()
        if not self._arriving:
            self.connection.deadline = None
            if not self.answering:
                self._finish()

    def _finish(self) -> None:
        if not self.flow.write_paused:
            self._paused = False
            self.limiter.finish(self.connection)

    def _abort(self) -> None:
        """Close at once."""
        if self.connection.secured:
            self.transport.abort()
        else:  # the event loop sees the end and fails the handshake
            with contextlib.suppress(OSError):
                self._accepted.shutdown(socket.SHUT_RDWR)

    def _refuse_head(self) -> None:
        """Answer 431 and close; only close if the answer to an earlier request is due first."""
        log.info("request line or headers too long", client=self.connection.client)
        self._headers = 0
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
        self.connection.deadline = self.limiter.clock() + LAST_WORD_SECONDS
