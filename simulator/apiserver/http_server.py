"""The HTTP server of the stand-in: uvicorn and starlette, and the faults that tests need.

Tests of clients need more than answers: an answer that stops in the middle of a line, a connection
that stays open and falls silent, a listener that refuses. So each connection's transport is kept:
aborting it drops the connection without an end.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import TypeAlias

import starlette.requests
import structlog
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.responses import Response as PlainResponse
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.process.listening import listen

_log = structlog.get_logger(__name__)
_SHUTDOWN_SECONDS = 0.1
"""How long a peer may take to answer a TLS close at the server's end (an idle one never does)."""
_KEEP_ALIVE_SECONDS = 24 * 3600
Address: TypeAlias = tuple[str, int]


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
    """

    method: str
    target: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def is_watch(self) -> bool:
        """Whether it asks for a watch."""
        return self.query.get("watch") in ("1", "true")


@dataclass(frozen=True, slots=True)
class Response:
    """One answer: a body, or a stream of pieces that are sent as chunks as they come."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncGenerator[bytes] | None = None
    content_type: str = "application/json"

    def for_starlette(self) -> PlainResponse:
        """The same answer in starlette's terms."""
        made: PlainResponse = (
            PlainResponse(self.body, self.status, media_type=self.content_type)
            if self.stream is None
            else StreamingResponse(self.stream, self.status, media_type=self.content_type)
        )
        for name, value in (*self.headers, ("Date", formatdate(usegmt=True))):
            made.headers.append(name, value.encode("latin-1", "replace").decode("latin-1"))
        return made


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the process that it runs in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield


class _Connection(HttpToolsProtocol):
    """A client's connection, which tells its owner when it opens and when it is lost."""

    owner: "HttpServer"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """A client has connected."""
        super().connection_made(transport)
        if self.client is not None:
            self.owner.opened(self.client, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or was dropped."""
        super().connection_lost(exc)
        if self.client is not None:
            self.owner.lost(self.client)


class HttpServer:
    """Listens, and knows its connections."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.connections: dict[Address, asyncio.Transport] = {}
        """The open connections, by the client's address and port."""
        self.port = 0
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._answers: dict[Address, asyncio.Task[None]] = {}

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Accepts connections and returns the port; plain HTTP without a context."""
        listener = listen(host, port)
        self.port = listener.getsockname()[1]
        self._server = _Server(self._config(context))
        self._serving = asyncio.create_task(self._server.serve([listener]))
        while not self._server.started and not self._serving.done():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        return self.port

    async def refuse(self) -> None:
        """Stops listening: new connections are refused, those that exist live on."""
        if self._server is None or self._serving is None:
            return
        for listener in self._server.servers:
            listener.close()
        self._serving.cancel()  # only the tick of uvicorn's clock; its own end takes 0.2 s
        await asyncio.gather(self._serving, return_exceptions=True)
        self._server = self._serving = None

    async def close(self, grace: float = 2.0) -> None:
        """Stops listening, lets answers under way finish for `grace` seconds, drops the rest."""
        await self.refuse()
        for client in self.connections.keys() - self._answers.keys():
            self.connections[client].close()
        await _until(lambda: not self._answers, grace)
        await _until(lambda: not self.connections, _SHUTDOWN_SECONDS)
        self.drop_connections()
        await _until(lambda: not self.connections, grace)

    def drop_connections(self) -> None:
        """Drop every connection."""
        for transport in tuple(self.connections.values()):
            transport.abort()

    def opened(self, client: Address, transport: asyncio.Transport) -> None:
        """Remember a connection."""
        self.connections[client] = transport

    def lost(self, client: Address) -> None:
        """Forget a connection, and cancel the answer on it."""
        self.connections.pop(client, None)
        if client in self._answers:
            self._answers[client].cancel()

    def _config(self, context: ssl.SSLContext | None) -> uvicorn.Config:
        return uvicorn.Config(
            self._application,
            http=type("Connection", (_Connection,), {"owner": self}),
            ssl_context_factory=(lambda _config, _default: context) if context else None,
            interface="asgi3",
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )

    async def _application(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application: one request, until it is answered or its client has gone."""
        client: Address = scope["client"]
        answer = asyncio.create_task(self._answer(scope, receive, send))
        self._answers[client] = answer
        await asyncio.wait({answer})
        del self._answers[client]
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            return
        if not isinstance(error, Cut | ClientDisconnect):  # a bug must be seen in the log
            _log.error("answer-crashed", path=scope["path"], exc_info=error)
        if client in self.connections:
            self.connections[client].abort()
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.handler(await _read(starlette.requests.Request(scope, receive)))
        try:
            await response.for_starlette()(scope, receive, send)
        finally:
            if response.stream is not None:
                await response.stream.aclose()


async def _read(request: starlette.requests.Request) -> Request:
    """The whole request."""
    query = request.scope["query_string"].decode("latin-1")
    target = request.scope["raw_path"].decode("latin-1")
    return Request(
        request.method,
        f"{target}?{query}" if query else target,
        request.url.path,
        dict(request.query_params),
        dict(request.headers),
        await request.body(),
    )


async def _until(reached: Callable[[], bool], seconds: float) -> None:
    """Poll until a condition holds, at most for so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not reached():  # noqa: ASYNC110 - the connections' own doing
                await asyncio.sleep(0.005)
