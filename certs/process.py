"""The process of `accelbind certs run`: rounds with pauses, metrics and probes on a plain port.

All replicas do the same, and there is no leader: see `certs.keeper`.
"""

import asyncio
import random
import time
from typing import Final, NoReturn

import structlog

from certs.keeper import CertificateReconciler, RoundReport
from certs.metrics import CertsMetrics
from certs.settings import CertsSettings
from services.kube.access import require_access
from services.kube.client import ClusterClient, requested_pause
from services.process.errors import AccelbindError
from services.process.http import MetricsServer, build_info, new_registry
from services.process.listening import write_ports
from services.process.outage import Outage
from services.process.retry import Backoff
from services.process.signals import stop_signals

SILENCE_SECONDS: Final = 180.0
"""How long no round may end, with or without success, before `/healthz` fails."""

log = structlog.get_logger(component="certs")


async def run(settings: CertsSettings) -> None:
    """Reconcile certificates until SIGTERM or SIGINT."""
    with stop_signals() as stop:
        await Process(settings).run_until(stop)
    log.info("stopped")


class Process:
    """The reconciler, its API client, and the server for metrics and probes."""

    def __init__(self, settings: CertsSettings) -> None:
        registry = new_registry()
        build_info(registry, "certs")
        self._settings = settings
        self._client = ClusterClient(require_access(settings.api_server))
        self._metrics = CertsMetrics(registry)
        self._reconciler = CertificateReconciler(settings)
        self._backoff = Backoff()
        self._outage = Outage(
            log,
            "certificates cannot be reconciled",
            "certificates are reconciled again",
            level="error",
            count=self._metrics.failures.inc,
        )
        self._error = "the first round is not done"
        self._ended = time.monotonic()
        routes = {"/healthz": self._probe_health, "/readyz": self._probe_readiness}
        self._server = MetricsServer(registry, routes)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Do rounds until `stop` is set."""
        settings, server = self._settings, self._server
        async with server:
            await server.start(settings.metrics_host, settings.metrics_port)
            write_ports(settings.ports_file, {"metrics": server.port})
            log.info("reconciling certificates", port=server.port, namespace=settings.namespace)
            try:
                async with asyncio.TaskGroup() as group:
                    rounds = group.create_task(self._reconcile_forever())
                    await stop.wait()
                    # In the middle of a round too: each write is atomic, and the next round of any
                    # replica continues.
                    rounds.cancel()
            finally:
                await self._client.aclose()

    async def _reconcile_forever(self) -> NoReturn:
        while True:
            pause = await self._run_once()
            self._ended = time.monotonic()
            await asyncio.sleep(pause)

    async def _run_once(self) -> float:
        """Do one round; return the seconds until the next."""
        # Replicas that started together would conflict in each round.
        spread = random.uniform(0.75, 1)  # noqa: S311 - jitter, not a secret
        pause = self._settings.interval * spread
        try:
            report = await self._reconciler.run_once(self._client)
            self._backoff.reset()
            self._show(report)
            self._error = "; ".join(report.problems)
        except AccelbindError as error:
            self._error, pause = str(error), self._backoff.pause(requested_pause(error))
        except Exception as error:  # the next round may find what it needs
            log.exception("internal error; the next round follows")
            self._error, pause = f"internal error: {error!r:.200}", self._backoff.pause()
        self._outage.update(self._error)
        self._metrics.failing.set(bool(self._error))
        self._metrics.ready.set(not self._error)
        return pause

    def _show(self, report: RoundReport) -> None:
        metrics = self._metrics
        metrics.expiry.labels("ca").set(report.authorities[0].ends.timestamp())
        if report.serving:
            metrics.expiry.labels("serving").set(report.serving.ends.timestamp())
        metrics.trusted.set(len(report.authorities))

    async def _probe_health(self) -> tuple[int, str]:
        # Rounds that fail are readiness: a restart would not help against them.
        silent = time.monotonic() - self._ended
        if silent > SILENCE_SECONDS + self._settings.interval:
            return 503, f"no round has ended for {silent:.0f} s\n"
        return 200, "ok\n"

    async def _probe_readiness(self) -> tuple[int, str]:
        return (503, f"{self._error}\n") if self._error else (200, "ok\n")
