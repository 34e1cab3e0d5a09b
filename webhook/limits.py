"""Limits on what all clients hold, and the drain, as an ASGI application."""

from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.pods.reasons import ReviewReason
from webhook.connection import PIECE, UNCOUNTED, Connection
from webhook.handler import Rejection

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
