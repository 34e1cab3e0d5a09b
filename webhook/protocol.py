"""What one connection may make the process hold: heads, bodies, answers."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from webhook.connections import UNANSWERED, Connection, Connections, Phase
from webhook.turns import Turns

PIECE: Final = 16 * 1024
"""Bytes of an answer that are written at a time, and may wait to be encrypted: one TLS record."""
MAX_HEAD: Final = 64 * 1024
"""Bytes of a request's head; what arrives in several pieces may count twice. The API server sends
about 300 bytes."""
MAX_HEADERS: Final = 100
"""The API server sends six."""


class BadHead(Exception):
    """A head that is refused; uvicorn answers 400 and closes the connection."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection, from the end of its TLS handshake. `options` are uvicorn's.

    It limits heads, for which uvicorn has no option.
    """

    def __init__(
        self,
        connections: Connections,
        connection: Connection,
        **options: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        super().__init__(**options, app_state={"connection": connection})
        self._connections = connections
        self._connection = connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """Start waiting for a request."""
        super().connection_made(transport)
        self._connection.close = transport.abort
        self._connections.enter(self._connection, Phase.HEAD)
        transport.set_write_buffer_limits(high=PIECE)
        verified = transport.get_extra_info("peercert")
        if verified and transport.get_extra_info("ssl_object").session_reused:
            # The CA that verified the session's first handshake may have been removed since.
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - see below
        """Release what the connection held."""
        self._connections.remove(self._connection)
        # After an error uvicorn leaves its keep-alive timer, which keeps all of it for 120 s.
        super().connection_lost(None)

    def data_received(self, data: bytes) -> None:
        """Parse bytes that arrived."""
        super().data_received(data)
        # The parser keeps a header without end. What arrives in pieces may count twice.
        if self._connection.phase is Phase.HEAD and self._hold_head(len(data)):
            self._connection.close()

    def on_message_begin(self) -> None:
        """Handle the first bytes of a request."""
        if self._connection.phase in UNANSWERED:
            # uvicorn would keep all requests of such a client.
            raise BadHead("a request before the answer to the previous one")
        super().on_message_begin()
        self._connections.enter(self._connection, Phase.HEAD)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        if self._hold_head(len(name) + len(value)) or len(self.headers) >= MAX_HEADERS:
            raise BadHead("the head is too long")
        if name.lower() == b"transfer-encoding":
            # Chunks cost time, and trailers memory, that are not part of a body.
            raise BadHead("a body needs a Content-Length")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Handle the end of a head."""
        self._connections.enter(self._connection, Phase.BODY)
        super().on_headers_complete()

    def _hold_head(self, size: int) -> bool:
        """Count bytes of a head; return whether it is too long."""
        self._connections.hold(self._connection, size)
        return self._connection.held > MAX_HEAD


class BoundedApp:
    """An ASGI application whose requests wait for their turn, and whose bodies are counted.

    Its answers ask clients to reconnect, to another replica, while `draining` returns true.
    """

    def __init__(
        self, app: ASGIApp, connections: Connections, draining: Callable[[], bool]
    ) -> None:
        self._app = app
        self._connections = connections
        self._draining = draining
        self._turns = Turns(connections)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        connection: Connection = scope["state"]["connection"]

        async def receive_counted() -> Message:
            message = await receive()
            self._connections.hold(connection, len(message.get("body", b"")))
            if not message.get("more_body"):
                await self._turns.wait(connection)
            return message if connection in self._connections else {"type": "http.disconnect"}

        async def send_bounded(message: Message) -> None:
            if message["type"] == "http.response.start":
                # What has not arrived of a request that is refused unread would be the next one.
                if self._draining() or connection.phase is Phase.BODY:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
                self._connections.enter(connection, Phase.ANSWER)
                await send(message)
                return
            body = message.get("body", b"")
            # The application has dropped the request's body.
            if not self._connections.hold(connection, len(body) - connection.held):
                while (await receive())["type"] != "http.disconnect":
                    pass
                return
            # OpenSSL and the kernel keep what is written to a client that does not read, so each
            # `send` waits for it, until `Connections.close_slow` or a limit closes the connection.
            for end in range(PIECE, len(body), PIECE):
                piece = body[end - PIECE : end]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            rest = (len(body) - 1) // PIECE * PIECE
            await send({**message, "body": body[rest:] if rest > 0 else body})

        try:
            await self._app(scope, receive_counted, send_bounded)
        finally:
            self._connections.hold(connection, -connection.held)
            self._connections.enter(connection, Phase.IDLE)
