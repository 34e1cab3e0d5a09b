"""A small HTTP/1.1 server over TLS: plain asyncio and httptools, so that a test owns every byte.

A web framework would do for answers, not for what tests of clients need: an answer that stops in
the middle of a line, a connection that stays open and falls silent, a listener that refuses. A
connection lives as asyncio's transport calls it: `data_received` feeds the parser, each complete
request is queued, and one task a connection answers them in order. A lost connection cancels it.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import httptools
import structlog

_log = structlog.get_logger(__name__)
_SHUTDOWN_SECONDS = 0.1
"""How long a peer may take to answer a TLS close at the server's end (an idle one never does)."""
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Cut(Exception):
    """Raised by a handler or a stream: drop the connection here and now, without an end."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, complete.

    Args:
        method: upper case.
        target: as it stood in the request line.
        path: decoded path.
        query: decoded parameters, the last of each name.
        headers: by lower-case name.
        body: all of it, or nothing where it went over the limit.
        oversized: whether it did.
    """

    method: str
    target: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    oversized: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """One answer: a body, or a stream of pieces that are sent as chunks as they come."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncGenerator[bytes] | None = None
    content_type: str = "application/json"


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class _Parts:
    """A request while it is being read."""

    url: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    body: list[bytes] = field(default_factory=list)
    size: int = 0

    def request(self, method: str, limit: int) -> Request:
        target = self.url.decode("latin-1")
        split = urlsplit(target)
        query = dict(parse_qsl(split.query, keep_blank_values=True))
        path, body = unquote(split.path), b"".join(self.body)
        too_large = self.size > limit
        return Request(method, target, path, query, self.headers, body, oversized=too_large)


class _Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._parts = _Parts()
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closing = False

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for mypy
        self._transport = transport
        self._server.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._server.left(self)
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST)

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._parts = _Parts()

    def on_url(self, url: bytes) -> None:
        self._parts.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._parts.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._parts.headers.get("expect", "").lower() == "100-continue":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._parts.size += len(body)
        # Read on, or the client would meet a reset connection instead of the answer.
        if self._parts.size > self._server.body_limit:
            self._parts.body.clear()
        else:
            self._parts.body.append(body)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode("latin-1")
        request = self._parts.request(method, self._server.body_limit)
        self._waiting.append((request, self._parser.should_keep_alive()))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._answer_all())

    # What the server calls.

    def finish(self) -> None:
        """Answers what is under way and closes; streams are ended where they are."""
        self._closing = True
        if self._task is None or self._task.done():
            self.close()

    def close(self) -> None:
        """Closes once what is written is sent, and at once if the server ends."""
        if self._transport is None:
            return
        self._transport.close()
        if self._closing:
            asyncio.get_running_loop().call_later(_SHUTDOWN_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Drops the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    # Answering.

    async def _answer_all(self) -> None:
        while self._waiting:
            request, keep_alive = self._waiting.popleft()
            try:
                response = await self._server.handler(request)
                await self._send(request, response, keep_alive=keep_alive)
            except Cut:
                self.abort()
                return
            except Exception:  # noqa: BLE001 - a bug must be seen in the log, and end the answer
                _log.exception("answer-crashed", method=request.method, target=request.target)
                self.abort()
                return
            if not keep_alive or self._closing:
                self.close()
                return

    async def _send(self, request: Request, response: Response, *, keep_alive: bool) -> None:
        headers = [("Content-Type", response.content_type), *response.headers]
        headers.append(("Date", formatdate(usegmt=True)))
        if not keep_alive or self._closing:
            headers.append(("Connection", "close"))
        if response.stream is None:
            headers.append(("Content-Length", str(len(response.body))))
            body = b"" if request.method == "HEAD" else response.body
            self._write(_head(response.status, headers) + body)
            await self._writable.wait()
            return
        headers.append(("Transfer-Encoding", "chunked"))
        self._write(_head(response.status, headers))
        async with contextlib.aclosing(response.stream) as pieces:
            async for piece in pieces:
                self._write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await self._writable.wait()
        self._write(b"0\r\n\r\n")

    def _refuse(self, status: HTTPStatus) -> None:
        body = status.phrase.encode()
        headers = [("Connection", "close"), ("Content-Length", str(len(body)))]
        self._write(_head(status, headers) + body)
        self.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _head(status: int, headers: list[tuple[str, str]]) -> bytes:
    phrase = _PHRASES.get(status, "")  # a webhook's refusal may bring any code
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


class HttpServer:
    """Listens, and keeps the connections.

    Args:
        handler: answers one request; a crash inside is its own business to turn into a 500.
        body_limit: bytes of a request body; 3 MiB as in a real API server.
    """

    def __init__(self, handler: Handler, *, body_limit: int = 3 * 2**20) -> None:
        self.handler = handler
        self.body_limit = body_limit
        self.connections: set[_Connection] = set()
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def listening(self) -> bool:
        """Whether connections are accepted at the moment."""
        return self._listener is not None

    async def listen(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Accepts connections and returns the port (that given, or a free one for 0)."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Connection(self), host, port, ssl=context, reuse_address=True
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        return self.port

    async def refuse(self) -> None:
        """Stops listening: new connections are refused, those that exist live on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def close(self, grace: float = 2.0) -> None:
        """Stops listening, lets answers under way finish for `grace` seconds, drops the rest."""
        await self.refuse()
        for connection in tuple(self.connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._empty.wait()
        for connection in tuple(self.connections):
            connection.abort()
        await self._empty.wait()

    def joined(self, connection: _Connection) -> None:
        """Counts a connection in."""
        self.connections.add(connection)
        self._empty.clear()

    def left(self, connection: _Connection) -> None:
        """Counts a connection out."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()
