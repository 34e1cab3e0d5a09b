"""The webhook process: what it is made of, how it starts and how it ends.

Start: certificate and mappings are loaded first, and what is wrong with them ends the process with
a sentence; then the ports open. Mappings of an API server come when they come, and `/readyz` says
no until then. A part that ends by itself ends the process: what restarts it can do more.

End: `/readyz` says no and answers ask clients to reconnect, for `drain_seconds` new connections are
still taken (endpoints take a moment to change), then `AdmissionServer.shutdown`.
"""

import asyncio
import contextlib
import gc
import importlib.metadata
import resource
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, Final, NoReturn

import structlog
from prometheus_client import CollectorRegistry

from services.admission.mutate import Policy
from services.process import logging
from services.process.errors import InvalidSettings, WorldError
from services.process.http import MetricsServer, build_info, new_registry
from services.process.listening import listen, write_ports
from services.process.signals import stop_signals
from services.process.tls import CertificateSource
from webhook.admission import Gate
from webhook.app import Readiness, build_app
from webhook.clients import Clients
from webhook.figures import Figures, State, WebhookCollector
from webhook.ledger import limits_for
from webhook.server import AdmissionServer
from webhook.settings import WebhookSettings
from webhook.sources import choose_source, staleness
from webhook.watching import hanging_told, tell_readiness

PROBE_SECONDS: Final = 3.0
DESCRIPTORS: Final = 2048
"""Open files that are enough for all connections that are allowed."""

log = structlog.get_logger(room="webhook")


async def run(settings: WebhookSettings) -> None:
    """Runs the webhook until SIGTERM or SIGINT.

    Raises:
        InvalidSettings: Nothing to take mappings from.
        ClusterError: An API server that there is no asking.
        CertificateError: A certificate or key that can't be used.
        WorldError: A port that can't be had, or a folder of mappings that isn't one.
    """
    logging.configure(settings.log_level, settings.log_format)
    webhook = Webhook(settings)
    with stop_signals() as stop:
        async with webhook.running():
            await webhook.serve_until(stop)
    log.info("stopped")


class Webhook:
    """The parts of the process, put together; loads certificate and mappings.

    Args:
        settings: What it was told.
    """

    def __init__(self, settings: WebhookSettings) -> None:
        if settings.tls_cert is None or settings.tls_key is None:
            raise InvalidSettings("a certificate and its key are required")
        self._settings = settings
        self.certificates = CertificateSource(
            settings.tls_cert, settings.tls_key, client_ca=settings.client_ca
        )
        self.certificates.load()
        self.mappings = choose_source(settings)
        self.mappings.load()
        figures = Figures()
        self.gate = Gate(
            self.mappings,
            Policy(settings.domain, settings.max_units),
            figures,
            max_body=settings.max_body,
            verbose=settings.log_level == "debug",
        )
        self.readiness = Readiness(lambda: list(self._missing()))
        app = build_app(self.gate, self.readiness, version=_version())
        self.clients = Clients(settings.client_name) if settings.client_ca else None
        self.server = AdmissionServer(
            app,
            self.certificates.context,
            gate=self.gate,
            clients=self.clients,
            limits=limits_for(settings.max_body, allow_descriptors()),
        )
        registry: CollectorRegistry = new_registry()
        build_info(registry, "webhook")
        registry.register(WebhookCollector(figures, self._state))
        self.metrics = MetricsServer(
            registry, {"/healthz": self._probe_health, "/readyz": self._probe_readiness}
        )
        self.address: tuple[str, int] = ("", 0)
        self._followers: list[asyncio.Task[NoReturn]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The parts beside the server: metrics, and followers of files."""
        async with self.metrics:
            await self.metrics.start(self._settings.host, self._settings.metrics_port)
            self._followers = [
                asyncio.create_task(tell_readiness(lambda: self.readiness.because)),
                asyncio.create_task(self.certificates.follow()),
                asyncio.create_task(self.mappings.follow()),
                asyncio.create_task(self.server.sweep()),
            ]
            try:
                with hanging_told():
                    yield
            finally:
                for follower in self._followers:
                    follower.cancel()
                await asyncio.gather(*self._followers, return_exceptions=True)

    async def serve_until(self, stop: asyncio.Event) -> None:
        """Serves reviews until `stop` is set and everything that came before is answered."""
        listener = listen(self._settings.host, self._settings.port)
        self.address = listener.getsockname()[:2]
        serving = asyncio.create_task(self.server.serve(sockets=[listener]))
        try:
            parts = [serving, *self._followers]
            await _first(parts, self.server.listening.wait())
            self._announce()
            await _first(parts, stop.wait())
            self._followers[0].cancel()  # that it is not ready any more is no news now
            self.gate.draining = True
            await asyncio.wait([serving], timeout=self._settings.drain_seconds)
        finally:
            self.server.should_exit = True
            await serving

    def _announce(self) -> None:
        ports = {"admission": self.address[1], "metrics": self.metrics.port}
        write_ports(self._settings.ports_file, ports)
        log.info("serving", port=self.address[1], metrics_port=self.metrics.port)
        # What the start has made stays: collections needn't look at it again and again.
        gc.collect()
        gc.freeze()

    def _missing(self) -> Iterator[str]:
        if stale := staleness(self.mappings, self._settings.max_staleness):
            yield stale
        if not self.certificates.loaded:
            yield "certificate not loaded"
        if self.gate.draining:
            yield "stopping"

    def _state(self) -> State:
        validity = self.certificates.validity
        return State(
            mappings=self.mappings.counts,
            rejected=self.mappings.rejected,
            age=self.mappings.age,
            outdated=bool(self.mappings.problem),
            watch_failures=self.mappings.watch_failures,
            certificate_ends=validity.ends if validity else 0.0,
            certificate_failing=bool(self.certificates.problem),
            certificate_failures=self.certificates.failures,
            clients_refused=self.clients.refused if self.clients else {},
            ready=not self.readiness.because,
            connections=self.server.limiter.ledger.connections,
            handshakes=self.server.limiter.ledger.handshakes,
            held_bytes=self.server.limiter.ledger.held_bytes,
            evicted=self.server.limiter.evictions.counts,
        )

    async def _probe_readiness(self) -> tuple[int, str]:
        missing = self.readiness.because
        return (503, f"{missing}\n") if missing else (200, "ok\n")

    async def _probe_health(self) -> tuple[int, str]:
        """Asks `/healthz` over our own socket and TLS, as a client would."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                status, text = await ask_healthz(*self.address)
        except (OSError, TimeoutError) as error:
            return 503, f"our own port does not answer: {error!r:.200}\n"
        return (200 if status == b"200" else 503), text or "our own port gives no answer\n"


async def ask_healthz(address: str, port: int) -> tuple[bytes, str]:
    """Status and text of `/healthz` on an address of this process."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False  # we know whom we are asking
    tls.verify_mode = ssl.CERT_NONE
    # Listening on `::` takes IPv4 too (`services.process.listening`), and IPv6 may be switched off
    # in a pod whose `::` can be had all the same.
    host = "127.0.0.1" if address in {"::", "0.0.0.0"} else address  # noqa: S104 - looked up
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.transport.abort()
    return head[9:12], body.decode("utf-8", "replace")


async def _first(parts: Sequence["asyncio.Task[Any]"], event: Coroutine[Any, Any, object]) -> None:
    """Waits for an event while parts of the process run.

    Raises:
        WorldError: One of them has ended by itself.
    """
    waiting = asyncio.ensure_future(event)
    try:
        await asyncio.wait([*parts, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for part in parts:
        if part.done():
            await part
            raise WorldError("a part of the process has ended by itself")


def allow_descriptors() -> int:
    """Raises the number of files that this process may have open, if need be, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _version() -> str:
    try:
        return importlib.metadata.version("accelbind")
    except importlib.metadata.PackageNotFoundError:
        return ""
