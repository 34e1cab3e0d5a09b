"""A bound for what stands around the bodies of requests: request line, headers, trailers.

uvicorn has none, and its parser keeps all of that, and copies a long one anew with each piece of it
that comes: a client could fill the memory, and hold up everybody else. So bytes are counted here,
from one event of the parser that ends a head, or is a body's content, to the next.
"""

from typing import Final

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from webhook.admission import status_body

MAX_HEAD: Final = 64 * 1024
"""Bytes that a request may have before its body, in it beside its content, and after it; the API
server sends about 300."""
_PIECE: Final = 16 * 1024
"""The parser is fed that much at a time: by so much a head may be longer than `MAX_HEAD`."""
LAST_WORD_SECONDS: Final = 1.0
"""How long a client that was refused has for reading why. TLS waits for its goodbye much longer,
and takes in, and drops, whatever comes until then."""

log = structlog.get_logger(room="server")


class BoundedProtocol(HttpToolsProtocol):
    """One connection, which ends with a 431 where a head, or what is like one, doesn't.

    Attributes:
        overhead: Bytes since anything came that ends a head or is a body's content.
    """

    overhead: int = 0

    def data_received(self, data: bytes) -> None:
        """Bytes came; a connection that is being closed takes no more."""
        for at in range(0, len(data), _PIECE):
            if self.transport.is_closing():
                return
            piece = data[at : at + _PIECE]
            self.overhead += len(piece)
            super().data_received(piece)  # what it finds sets the count back
            if self.overhead > MAX_HEAD:
                self._refuse()

    def on_headers_complete(self) -> None:
        """The head has its end."""
        self.overhead = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Content; how much of it there may be is the application's business."""
        self.overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has its end, with its trailers."""
        self.overhead = 0
        super().on_message_complete()

    def _refuse(self) -> None:
        """Answers what has no end, unless another answer is due first, and closes."""
        log.info("request line or headers too long", client=str(self.client))
        if self._owes_another_answer():
            self.transport.abort()
            return
        message = f"request line, headers and trailers may have at most {MAX_HEAD} bytes"
        body = status_body(431, message)
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
        self.loop.call_later(LAST_WORD_SECONDS, self.transport.abort)

    def _owes_another_answer(self) -> bool:
        """Whether an answer has been begun, or one to an earlier request has not."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return cycle.response_started or not cycle.more_body
