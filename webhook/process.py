"""The webhook process: its parts, its start and its shutdown."""

import asyncio
import gc
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import structlog

from services.process.errors import ExternalFailure
from services.process.http import MetricsServer, build_info, new_registry
from services.process.listening import listen, write_ports
from services.process.outage import Outage
from services.process.signals import stop_signals
from services.process.tls import CertificateSource
from webhook.app import AdmissionHandler, create_app
from webhook.metrics import AdmissionMetrics, WebhookCollector
from webhook.selfcheck import check_ourselves
from webhook.server import SOCKET_BUFFERS, AdmissionServer, limit_files
from webhook.settings import WebhookSettings
from webhook.sources import choose_source, staleness

log = structlog.get_logger(component="webhook")


async def run(settings: WebhookSettings) -> None:
    """Run the webhook until SIGTERM or SIGINT.

    Raises:
        InvalidSettings: No source of mappings.
        ClusterError: The service account can't be used.
        CertificateError: The certificate or key can't be used.
        ExternalFailure: A port is taken, or the folder of mappings can't be read.
    """
    limit_files()
    webhook = Webhook(settings)
    with stop_signals() as stop:
        await webhook.run_until(stop)
    log.info("stopped")


class Webhook:
    """The parts of the process.

    Certificate and a folder's mappings are loaded, and an error in them ends the process. Mappings
    of an API server may arrive later; `/readyz` fails until then.
    """

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self.certificates = CertificateSource(
            settings.tls_cert, settings.tls_key, client_ca=settings.client_ca
        )
        self.certificates.load()
        self.mappings = choose_source(settings)
        metrics = AdmissionMetrics()
        self.handler = AdmissionHandler(
            self.mappings,
            settings.policy(),
            metrics,
            max_body=settings.max_body,
        )
        self.server = AdmissionServer(create_app(self.handler), self.certificates.context)
        registry = new_registry()
        build_info(registry, "webhook")
        registry.register(WebhookCollector(metrics, self._state))
        probes = {"/healthz": self.healthz, "/readyz": self.readyz}
        self.metrics = MetricsServer(registry, probes)
        self._readiness = Outage(log, "not ready", "ready")
        self.address: tuple[str, int] = ("", 0)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Serve reviews until `stop` is set and all requests are answered."""
        async with self.metrics:
            await self.metrics.start(self._settings.metrics_host, self._settings.metrics_port)
            listener = listen(self._settings.host, self._settings.port, buffers=SOCKET_BUFFERS)
            self.address = listener.getsockname()[:2]
            serving = asyncio.create_task(self.server.serve(sockets=[listener]))
            parts: list[asyncio.Task[Any]] = [
                serving,
                asyncio.create_task(self.certificates.follow()),
                asyncio.create_task(self.mappings.follow(), name="mappings"),
            ]
            try:
                self._announce()
                await _first(parts, stop.wait())
                # `/readyz` fails now, and answers ask clients to reconnect. Endpoints take a moment
                # to change, so new connections are still accepted.
                self.server.app.draining = True
                await asyncio.wait([serving], timeout=self._settings.drain_seconds)
            finally:
                self.server.should_exit = True
                await asyncio.wait([serving])
                for part in parts:
                    part.cancel()
                await asyncio.gather(*parts, return_exceptions=True)
            serving.result()  # raises what went wrong at the end

    def _announce(self) -> None:
        ports = {"admission": self.address[1], "metrics": self.metrics.port}
        write_ports(self._settings.ports_file, ports)
        log.info("serving", port=self.address[1], metrics_port=self.metrics.port)
        # Objects of the start live on; garbage collections need not visit them.
        gc.collect()
        gc.freeze()

    def _missing(self) -> str:
        """Return why the process is not ready; empty if it is."""
        stale = staleness(self.mappings, self._settings.max_staleness)
        return ", ".join(filter(None, (stale, "stopping" if self.server.app.draining else "")))

    def _state(self) -> dict[str, float | Mapping[str, float]]:
        """Return the values of the gauges and counters in `webhook.metrics`."""
        certificates = self.certificates
        return {
            "mappings": self.mappings.index.counts,
            "mappings_rejected": self.mappings.rejected,
            "mappings_age_seconds": self.mappings.age,
            "mappings_updates_failing": bool(self.mappings.error),
            "watch_failures": self.mappings.watch_failures,
            "certificate_expiry_timestamp_seconds": certificates.expires or 0.0,
            "certificate_reload_failing": bool(certificates.error),
            "certificate_reload_failures": certificates.failures,
            "connections": len(self.server.opened),
            "connections_held_bytes": self.server.app.held,
            "ready": not self._missing(),
        }

    async def readyz(self) -> tuple[int, str]:
        """Whether it has mappings that are young enough and is not stopping."""
        reason = self._missing()
        self._readiness.update(reason)
        return (503, f"{reason}\n") if reason else (200, "ok\n")

    async def healthz(self) -> tuple[int, str]:
        """Whether a review of our own is answered correctly."""
        # On the event loop that answers all others: one that hangs fails the probe too.
        problem = check_ourselves()
        return (503, f"{problem}\n") if problem else (200, "ok\n")


async def _first(parts: Sequence["asyncio.Task[Any]"], event: Coroutine[Any, Any, object]) -> None:
    """Wait for an event while parts of the process run.

    Raises:
        ExternalFailure: One of them has ended.
    """
    waiting = asyncio.ensure_future(event)
    try:
        await asyncio.wait([*parts, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for part in parts:
        if part.done():
            await part
            raise ExternalFailure("a part of the process has ended unexpectedly")
