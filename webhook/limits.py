"""Limits that uvicorn has no option for: of each connection and of all together; and the drain."""

import asyncio
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.pods.reasons import ReviewReason
from webhook.app import Rejection

MOST: Final = 900
"""Connections. Leaves files for probes and the API server."""
WAIT_SECONDS: Final = 30.0
"""For a head, and then for the request's end. An API server waits 30 s for an answer at most."""
MAX_HEAD: Final = 8 * 1024
MAX_LINES: Final = 100
"""Bytes and lines of a request's head. The API server sends about 300 bytes in 7 lines."""
UNCOUNTED: Final = 64 * 1024
"""Bytes that each connection may hold of a body, an unread answer, or an early next request."""

PIECE: Final = 16 * 1024
"""Bytes of a large answer that are written at once: a TLS record."""


class Connection(asyncio.Protocol):
    """A connection from the end of its TLS handshake, around uvicorn's protocol.

    uvicorn's protocol gets a head when all of it has arrived, and then the request's body. Until
    the next head begins, uvicorn's keep-alive time counts.
    """

    def __init__(
        self,
        opened: "set[Connection]",
        app_state: dict[str, Any],
        **options: Any,  # noqa: ANN401 - uvicorn's
    ) -> None:
        self._opened = opened
        self._http = HttpToolsProtocol(**options, app_state={**app_state, "connection": self})
        self.body_left: int | None = None
        """Missing bytes of the body; None between requests, 0 until a request has begun."""
        self._received = bytearray()
        """Bytes that uvicorn's protocol doesn't have yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvloop's have no such class
        """Wait for the first request."""
        self.abort = transport.abort
        self._opened.add(self)
        self._writable.set()
        self._limit_time()
        transport.set_write_buffer_limits(high=PIECE)
        self._http.connection_made(transport)
        verified = transport.get_extra_info("peercert")
        # The CA that verified a session's first handshake may have been removed since.
        resumed = verified and transport.get_extra_info("ssl_object").session_reused
        if resumed or len(self._opened) > MOST:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - see below
        """Release what the connection holds."""
        self._opened.discard(self)
        self._received.clear()
        self._writable.set()
        self._limit_time(begin=False)
        # After an error uvicorn would leave its keep-alive timer, which keeps all for 120 s.
        self._http.connection_lost(None)

    def data_received(self, data: bytes) -> None:
        """Pass on bytes that arrived, as far as they may be parsed now."""
        self._received += data
        self._pass_on()

    def pause_writing(self) -> None:
        """Wait for a client that doesn't read its answer."""
        self._writable.clear()
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Go on when the client has read most of its answer."""
        self._writable.set()
        self._http.resume_writing()

    def begin(self, length: int) -> None:
        """Begin a request with so many bytes of body."""
        self.body_left = length
        self._limit_time()
        self._pass_on()

    async def end(self) -> None:
        """End a request once its client has read the answer, or has gone."""
        await self._writable.wait()
        self.body_left = None
        self._limit_time(begin=False)
        self._pass_on()

    def _pass_on(self) -> None:
        if self.body_left is None:
            # HTTP allows empty lines before a request; they don't begin it.
            self._received = self._received.lstrip(b"\r\n")
            if self._received and self._timer is None:
                self._limit_time()
            size = self._received.find(b"\r\n\r\n", 0, MAX_HEAD) + 4
            if size < 4 and len(self._received) < MAX_HEAD:
                return
            if size < 4 or self._received.count(b"\n", 0, size) > MAX_LINES:
                self.abort()
                return
            self.body_left = 0
        else:
            size = min(self.body_left, len(self._received))
            self.body_left -= size
            if len(self._received) - size > UNCOUNTED:
                self.abort()
        if size:
            data = bytes(self._received[:size])
            del self._received[:size]
            self._http.data_received(data)

    def _limit_time(self, *, begin: bool = True) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WAIT_SECONDS, self.abort) if begin else None


MOST_HELD: Final = 24 * 1024 * 1024
"""Bytes of bodies and unread answers, each beyond `UNCOUNTED`: large ones don't keep out others."""

log = structlog.get_logger(component="server")


class BoundedApp:
    """An application within limits.

    While it is `draining`, its answers ask clients to reconnect, to another replica.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.draining = False
        self.held = 0
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        chunked = b"transfer-encoding" in headers
        length = 0 if chunked else int(headers.get(b"content-length", 0))
        connection: Connection = scope["state"]["connection"]
        connection.begin(length)
        held = 0

        def hold(size: int) -> bool:
            nonlocal held
            more = max(0, size - UNCOUNTED) - held
            if more > 0 and self.held + more > MOST_HELD:
                return False
            held, self.held = held + more, self.held + more
            return True

        async def receive_held() -> Message:
            if not hold(length):
                raise Rejection(503, ReviewReason.OVERLOADED, "too many large requests at once")
            return await receive()

        async def send_held(message: Message) -> None:
            if message["type"] == "http.response.start":
                # What has not arrived of a request that is refused unread would be the next one.
                if self.draining or chunked or connection.body_left:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
                await send(message)
            elif not hold(size := len(message["body"])):
                log.info("answer dropped: clients don't read their large answers")
                connection.abort()
                while (await receive())["type"] != "http.disconnect":
                    pass
            elif size > UNCOUNTED:  # TLS takes any piece at once, the next one when it is read
                for at in range(0, size, PIECE):
                    piece = {**message, "body": message["body"][at : at + PIECE]}
                    await send({**piece, "more_body": at + PIECE < size})
            else:
                await send(message)

        try:
            await self._app(scope, receive_held, send_held)
            await connection.end()
        finally:
            hold(0)
