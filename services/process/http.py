"""Metrics and probes over plain HTTP, without authentication: for the cluster's network only."""

import asyncio
import contextlib
import importlib.metadata
import platform
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import ClassVar, Final, Self

import starlette.routing
import structlog
import uvicorn
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.process.listening import listen

Route = Callable[[], Awaitable[tuple[int, str | bytes]]]
"""Answers a probe: an HTTP status, and a text or the bytes of a JSON document."""

MAX_HEAD: Final = 8 * 1024
MAX_CONNECTIONS: Final = 64
DEADLINE: Final = 5.0
"""Seconds for a whole exchange: reading the request, answering it, the client taking the answer."""
# The part of the deadline that a probe may take, so that its failure can still be sent.
ANSWER_SHARE: Final = 0.8

log = structlog.get_logger(component="metrics")


def new_registry() -> CollectorRegistry:
    """A registry with the CPU, memory and descriptors of the process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def own_version() -> str:
    """The version of the installed package; empty if it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("accelbind")
    return ""


def build_info(registry: CollectorRegistry, component: str, version: str = "") -> None:
    """Add `accelbind_build_info`; the version is by default the installed package's."""
    gauge = Gauge(
        "accelbind_build_info",
        "What is running; always 1.",
        ("component", "version", "python"),
        registry=registry,
    )
    version = version or own_version() or "unknown"
    gauge.labels(component, version, platform.python_version()).set(1)


class PlainProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, with a deadline for each connection and a bound on their number."""

    deadline: ClassVar[float] = DEADLINE
    connected: "ClassVar[dict[PlainProtocol, Callable[[], None]]]"
    """The functions that end the connections of a server, oldest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class
        """Start the deadline of a new connection."""
        super().connection_made(transport)
        if len(self.connected) >= MAX_CONNECTIONS:
            # The oldest goes: a new probe is served however many clients are silent. uvicorn's own
            # limit would refuse the new one.
            self.connected.pop(next(iter(self.connected)))()
        self.connected[self] = transport.abort
        self._end = asyncio.get_running_loop().call_later(self.deadline, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._end.cancel()
        self.connected.pop(self, None)
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """uvicorn in a process that has other work, and handles signals itself."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stop = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait until it is stopped."""
        # Not uvicorn's loop, which wakes an idle process ten times a second.
        await self.on_tick(0)  # sets the headers of all answers
        await self.stop.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class MetricsServer:
    """`/metrics` and probe routes, such as `{"/healthz": probe}`, on a port of their own.

    `before_scrape` reads what a scrape shows. A whole exchange may take `deadline` seconds.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        routes: Mapping[str, Route] | None = None,
        *,
        before_scrape: Callable[[], Awaitable[None]] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self._registry = registry
        self._before_scrape = before_scrape
        self._answer_seconds = ANSWER_SHARE * deadline
        endpoints = {path: self._probe(path, route) for path, route in (routes or {}).items()}
        app = Starlette(
            routes=[
                starlette.routing.Route(path, endpoint)
                for path, endpoint in {"/metrics": self._metrics, **endpoints}.items()
            ]
        )
        # A class of its own, since uvicorn creates the protocols: each server has its connections.
        protocol = type("Protocol", (PlainProtocol,), {"deadline": deadline, "connected": {}})
        self._server = _Server(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                headers=[("Connection", "close")],
                h11_max_incomplete_event_size=MAX_HEAD,
                timeout_graceful_shutdown=1,
            )
        )
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen, on any free port for port 0, and serve in a task."""
        listener = listen(host, port)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name="metrics")
        self.port = listener.getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and end open exchanges."""
        if self._serving is not None:
            self._server.stop.set()
            await self._serving

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _metrics(self, _request: Request) -> Response:
        if self._before_scrape is not None:
            await self._before_scrape()
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def _probe(self, path: str, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def answer(_request: Request) -> Response:
            try:
                async with asyncio.timeout(self._answer_seconds):
                    status, content = await route()
            except Exception:  # a failure, also of ours, is an answer: not healthy
                log.exception("probe failed", path=path)
                return PlainTextResponse("probe failed\n", 500)
            if isinstance(content, bytes):
                return Response(content, status, media_type="application/json")
            return PlainTextResponse(content.encode("utf-8", "replace"), status)

        return answer
