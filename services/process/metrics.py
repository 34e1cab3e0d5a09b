"""Metrics and probes over plain HTTP, beside whatever else a process serves.

A server small enough for the plugin's memory: GET and HEAD, one request a connection, bounded
heads, everything within a deadline, so that neither a slow nor a hostile client holds anything.
Serve it to the cluster's network only: it has no TLS and asks nobody who they are.
"""

import asyncio
import contextlib
import platform
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, Self, cast

import structlog
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from services.process.listening import listen

Route = Callable[[], Awaitable[tuple[int, str]]]
"""Answers a probe: an HTTP status and a text."""

MAX_HEAD: Final = 8 * 1024
MAX_CONNECTIONS: Final = 64
DEADLINE: Final = 5.0
"""Seconds for a whole exchange: reading the request, answering it, the client taking the answer."""

_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"


class Json(str):
    """An answer that is a JSON document."""

    __slots__ = ()


log = structlog.get_logger(room="metrics")


def new_registry() -> CollectorRegistry:
    """A registry of our own with the process's CPU, memory and descriptors in it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def build_info(registry: CollectorRegistry, component: str, version: str = "") -> None:
    """Adds `accelbind_build_info`, always 1, whose labels tell what is running.

    Args:
        registry: Where to add it.
        component: What is running.
        version: Its version, if the caller knows; else it is looked up, which costs 2 MiB.
    """
    gauge = Gauge(
        "accelbind_build_info",
        "What is running; always 1.",
        ("component", "version", "python"),
        registry=registry,
    )
    gauge.labels(component, version or _installed(), platform.python_version()).set(1)


def _installed() -> str:
    """The version as the installed package has it."""
    import importlib.metadata  # noqa: PLC0415 - see above

    try:
        return importlib.metadata.version("accelbind")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class MetricsServer:
    """`/metrics` and probe routes on a port of their own.

    Args:
        registry: What `/metrics` shows.
        routes: Further paths, e.g. `{"/healthz": probe}`.
        deadline: Seconds for a whole exchange.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        routes: Mapping[str, Route] | None = None,
        *,
        deadline: float = DEADLINE,
    ) -> None:
        self._registry = registry
        self._routes = dict(routes or {})
        self._deadline = deadline
        self._server: asyncio.Server | None = None
        self._exchanges: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], asyncio.WriteTransport] = {}
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """Listens.

        Args:
            host: The address to listen on; `::` means all, IPv6 and IPv4.
            port: The port; 0 means any free one.

        Returns:
            The port it listens on.

        Raises:
            WorldError: The address can't be had.
        """
        listener = listen(host, port)
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD)
        self.port = listener.getsockname()[1]
        return self.port

    async def close(self) -> None:
        """Stops listening and ends what is still going on."""
        if self._server is None:
            return
        self._server.close()
        for exchange in tuple(self._exchanges):
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._exchanges) >= MAX_CONNECTIONS and not self._make_room():
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._exchange(reader, writer))
        self._exchanges.add(task)
        self._silent[task] = writer.transport
        task.add_done_callback(self._forget)

    def _make_room(self) -> bool:
        """Lets go of who has been silent for longest: a probe that asks at once must get in."""
        for task, transport in self._silent.items():
            transport.abort()
            self._forget(task)
            return True
        return False

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._exchanges.discard(task)
        self._silent.pop(task, None)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._deadline):
                await self._answer(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            log.debug("client went away or was too slow")
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            status, kind, body, method = 431, _TEXT, b"request head too large\n", "GET"
        else:
            self._silent.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
            method, path = _request_line(head)
            status, kind, body = await self._respond(method, path)
        phrase = HTTPStatus(status).phrase
        allow = "Allow: GET, HEAD\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
        writer.write(
            f"HTTP/1.1 {status} {phrase}\r\nContent-Type: {kind}\r\n{allow}"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode("latin-1")
        )
        if method != "HEAD":
            writer.write(body)
        await writer.drain()

    async def _respond(self, method: str, path: str) -> tuple[int, str, bytes]:
        if not method:
            return 400, _TEXT, b"bad request\n"
        if path != "/metrics" and path not in self._routes:
            return 404, _TEXT, b"not found\n"
        if method not in {"GET", "HEAD"}:
            return 405, _TEXT, b"method not allowed\n"
        if path == "/metrics":
            return 200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._registry)
        try:
            status, text = await self._routes[path]()
        except Exception:  # a probe that fails is an answer: not healthy
            log.exception("probe failed", path=path)
            return 500, _TEXT, b"probe failed\n"
        kind = _JSON if isinstance(text, Json) else _TEXT
        return status, kind, text.encode("utf-8", "replace")


def _request_line(head: bytes) -> tuple[str, str]:
    """Method and path (without query) of a request head; empty texts when it isn't one."""
    with contextlib.suppress(ValueError):
        method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        if version.startswith("HTTP/1.") and target.startswith("/"):
            return method, target.partition("?")[0]
    return "", ""


async def serve(
    registry: CollectorRegistry,
    host: str,
    port: int,
    routes: Mapping[str, Route] | None = None,
) -> MetricsServer:
    """Starts a `MetricsServer`; its `port` tells which port it got, `close()` ends it."""
    server = MetricsServer(registry, routes)
    await server.start(host, port)
    return server
