"""What one connection may make the process hold: heads, bodies, answers.

`BoundedProtocol` limits heads, for which uvicorn has no option. `BoundedApp` is the ASGI side: it
counts the bytes of bodies and answers, has each request wait for its turn, and sends answers in
pieces.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from webhook.connections import BEGUN, Connection, Connections, Phase
from webhook.turns import Turns

PIECE: Final = 16 * 1024
"""Bytes of an answer that are written at a time, and may wait to be encrypted: one TLS record."""
MAX_HEAD: Final = 64 * 1024
"""Bytes of a request's head, and HEADER_COST more for each header. What arrives in several pieces
may count twice. The API server sends about 300 bytes and six headers."""
HEADER_COST: Final = 256
"""More than what Python's objects for one header take (two `bytes`, their tuple and its place in
uvicorn's list: about 140 bytes): otherwise 16,000 headers `a:` would fit, and take 2 MiB."""


class BadHead(Exception):
    """A head that is refused; uvicorn answers 400 and closes the connection."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection, from the end of its TLS handshake.

    Args:
        connections: Of all clients.
        connection: This one.
        options: As uvicorn creates its protocol.
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
        self._head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """Start waiting for a request."""
        super().connection_made(transport)
        self._connection.phase, self._connection.close = Phase.NEW, transport.abort
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
        if self._connection.phase is Phase.HEAD:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self._connection.close()

    def on_message_begin(self) -> None:
        """Handle the first bytes of a request."""
        if self._connection.phase in BEGUN:
            raise BadHead("a request before the answer to the previous one")
        super().on_message_begin()
        self._head = 0
        self._connections.begin(self._connection)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._head += len(name) + len(value) + HEADER_COST
        if self._head > MAX_HEAD:
            raise BadHead("the head is too long")
        if name.lower() == b"transfer-encoding":
            # Chunks cost time, and trailers memory, that are not part of a body.
            raise BadHead("a body needs a Content-Length")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Handle the end of a head."""
        self._connection.phase = Phase.BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Handle the last bytes of a request."""
        super().on_message_complete()
        if self._connection.phase is Phase.BODY:
            self._connection.phase = Phase.TURN


class BoundedApp:
    """An ASGI application whose requests and answers are counted.

    Args:
        app: The application.
        connections: Of all clients.
        draining: Whether answers ask clients to reconnect, to another replica.
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
                # What has not arrived of a request that was refused would count for the next one.
                if self._draining() or connection.phase is Phase.BODY:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
                if connection.phase is Phase.TURN:
                    self._connections.answer(connection)
                await send(message)
                return
            body = message.get("body", b"")
            # The application has dropped the request's body. Each `send` waits while the client
            # does not read, until `Connections.close_slow` or a limit closes the connection.
            if not self._connections.hold(connection, len(body) - connection.held):
                while (await receive())["type"] != "http.disconnect":
                    pass
                return
            for end in range(PIECE, len(body), PIECE):
                piece = body[end - PIECE : end]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            rest = (len(body) - 1) // PIECE * PIECE
            await send({**message, "body": body[rest:] if rest > 0 else body})

        try:
            await self._app(scope, receive_counted, send_bounded)
        finally:
            self._connections.end(connection)
