"""The HTTP server of the stand-in: uvicorn, starlette, a pair for TLS, and what tests need.

Tests of clients need more than answers: an answer that stops in the middle of a line, a connection
that stays open and falls silent, a listener that refuses.
"""

import asyncio
import contextlib
import socket
import ssl
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple, TypeAlias

import starlette.requests
import structlog
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.responses import Response as PlainResponse
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from certs.folder import issue
from services.process.listening import listen

_log = structlog.get_logger(__name__)
_MEDIA_TYPE = "application/json"
_KEEP_ALIVE_SECONDS = 24 * 3600


class Cut(Exception):
    """Raised by a handler or a stream: drop the connection here and now, without an end."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    """As it stood in the request line."""
    path: str
    query: Mapping[str, str]
    """The last parameter of each name."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes = b""
    is_local: bool = False
    """Whether it came through the socket."""

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")

    @property
    def plural(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Response:
    """One answer: a body, or a stream of pieces that are sent as chunks as they come."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncGenerator[bytes] | None = None

    def for_starlette(self) -> PlainResponse:
        made: PlainResponse = (
            PlainResponse(self.body, self.status, media_type=_MEDIA_TYPE)
            if self.stream is None
            else StreamingResponse(self.stream, self.status, media_type=_MEDIA_TYPE)
        )
        for name, value in (*self.headers, ("Date", formatdate(usegmt=True))):
            made.headers.append(name, value.encode("latin-1", "replace").decode("latin-1"))
        return made


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class HttpServer:
    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.port = 0
        self._servers: list[uvicorn.Server] = []

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Accept connections and return the port; plain HTTP without a context."""
        listener = listen(host, port)
        self.port = listener.getsockname()[1]
        await self._start(listener, context)
        return self.port

    async def listen_on(self, path: Path) -> None:
        """Accept connections on a socket too, without TLS."""
        await self._start(_bind(path), None)

    async def _start(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        config = self._config(context)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup([listener])  # `serve` would take over the process's signals
        self._servers.append(server)

    def refuse(self) -> None:
        """Stop listening: new connections are refused, those that exist live on."""
        for server in self._servers:
            for listener in server.servers:
                listener.close()

    async def close(self, grace: float = 2.0) -> None:
        """Stop listening, let answers under way finish for `grace` seconds, drop the rest."""
        self.refuse()
        answers = [task for server in self._servers for task in server.server_state.tasks]
        if answers:
            _, late = await asyncio.wait(answers, timeout=grace)
            for answer in late:
                answer.cancel()
        self.drop_connections()
        await asyncio.sleep(0)  # the connections' own ends

    def drop_connections(self, scope: Scope | None = None) -> None:
        """Drop every connection, or that of a request."""
        for connection in [each for one in self._servers for each in one.server_state.connections]:
            if not isinstance(connection, HttpToolsProtocol):
                continue  # there are no others: see `_config`
            if scope is None or connection.scope is scope:
                connection.transport.abort()

    def _config(self, context: ssl.SSLContext | None) -> uvicorn.Config:
        return uvicorn.Config(
            self._application,
            http=HttpToolsProtocol,
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
        try:
            response = await self.handler(await _read(starlette.requests.Request(scope, receive)))
            async with contextlib.AsyncExitStack() as stack:
                if response.stream is not None:
                    await stack.enter_async_context(contextlib.aclosing(response.stream))
                await response.for_starlette()(scope, receive, send)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - a bug must be seen in the log
            if not isinstance(error, Cut):
                _log.exception("answer-crashed", path=scope["path"])
            self.drop_connections(scope)
            while (await receive())["type"] != "http.disconnect":
                pass


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    return listener


async def _read(request: starlette.requests.Request) -> Request:
    query = request.scope["query_string"].decode("latin-1")
    target = request.scope["raw_path"].decode("latin-1")
    return Request(
        request.method,
        f"{target}?{query}" if query else target,
        request.url.path,
        dict(request.query_params),
        dict(request.headers),
        await request.body(),
        is_local=request.client is None,
    )


class ServingPair(NamedTuple):
    authority: bytes
    """What clients of a server trust: the certificate of an authority of its own; PEM."""
    context: ssl.SSLContext


def make_pair(names: Sequence[str]) -> ServingPair:
    """Issue a serving certificate for these names and addresses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.TemporaryDirectory(prefix="pair-") as folder:
        issued = issue(Path(folder), names)
        context.load_cert_chain(issued.certificate, issued.key)
        return ServingPair(issued.ca_certificate.read_bytes(), context)
