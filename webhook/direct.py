"""The short way of a review: it is answered while its last bytes are being parsed.

uvicorn makes a task, an event and a scope of each request, hands its body over in messages, and
takes the answer in two: more work than the review itself. So a connection answers what is plainly a
review by itself, in one write: a POST to an admission endpoint that tells how long it is, with
nothing else going on. Everything else (bodies in chunks, odd headers, other paths, requests before
the last one is answered, clients that don't read) takes the long way through the application, where
the same `Gate` answers.

States of a connection, as far as this module goes: a request takes the short way from the end of
its head (`endpoint` names what it asks for) to its last byte, when it is answered and `endpoint`
is empty again.
"""

from typing import Any, Final

import structlog
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from webhook.admission import ENDPOINTS, Gate, status_body
from webhook.heads import BoundedProtocol

_PATHS: Final = {path.encode(): endpoint for path, endpoint in ENDPOINTS.items()}
_REASONS: Final = {
    200: b"OK",
    400: b"Bad Request",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
_HEAD: Final = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
_LEFT_OPEN: Final = b"\r\n"
_CLOSED: Final = b"connection: close\r\n\r\n"

log = structlog.get_logger(room="server")


class DirectProtocol(BoundedProtocol):
    """One connection; reviews take the short way if there is a gate.

    Attributes:
        gate: Answers reviews; None if all of them take the long way.
        endpoint: What the review that is being read asks for; empty while none is.
        kept_since: The loop's time when the last review was answered, None while there is another
            request. uvicorn sets a timer for each answer; who sweeps needs none.
    """

    gate: Gate | None = None
    endpoint: str = ""
    kept_since: float | None = None

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(**options)
        self._body: list[bytes] = []
        self._last = False

    @property
    def answering(self) -> bool:
        """Whether a request is being read or answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return bool(self.endpoint) or (cycle is not None and not cycle.response_complete)

    def on_message_begin(self) -> None:
        """The first bytes of a request; only the long way needs a scope, and makes it later."""
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self.kept_since = None

    def on_headers_complete(self) -> None:
        """The head has its end: now it shows which way the request takes."""
        self.endpoint = self._short_way()
        if self.endpoint:
            self.overhead = 0
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)  # which is the scope's
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Content, of which there is no more than the head said."""
        if not self.endpoint:
            super().on_body(body)
            return
        self.overhead = 0
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The request has its end, and on the short way its answer."""
        if self.endpoint and self.gate is not None:
            self.overhead = 0
            self._reply(self.gate)
        else:
            super().on_message_complete()

    def forget_body(self) -> None:
        """Frees what has come of a review whose client is gone."""
        self.endpoint, self._body = "", []

    def shutdown(self) -> None:
        """Closes, once a request that has begun is answered."""
        if self.endpoint:
            self._last = True
        else:
            super().shutdown()

    def _short_way(self) -> str:
        """The endpoint of a request that can be answered here, or nothing."""
        gate, parser = self.gate, self.parser
        endpoint = _PATHS.get(self.url.partition(b"?")[0], "")
        if (
            gate is None
            or not endpoint
            or parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or parser.should_upgrade()
            or self.expect_100_continue
            or self.flow.write_paused
            or self.transport.is_closing()
            or self.answering
            or not gate.takes(self.headers)
        ):
            return ""
        return endpoint

    def _reply(self, gate: Gate) -> None:
        """Answers the review that has been read."""
        endpoint = self.endpoint
        body = b"".join(self._body)
        self.endpoint, self._body = "", []
        closing = self._last or gate.draining
        try:
            status, answer = gate.reply(endpoint, body)
        except Exception:  # as uvicorn does it on the long way
            log.exception("a request was not answered after a mistake of ours", endpoint=endpoint)
            status, answer, closing = 500, status_body(500, "accelbind failed; see its log"), True
        head = _HEAD % (status, _REASONS[status], len(answer))
        self.transport.write(head + (_CLOSED if closing else _LEFT_OPEN) + answer)
        self.server_state.total_requests += 1
        if closing:
            self.transport.close()
        else:
            self.kept_since = self.loop.time()
