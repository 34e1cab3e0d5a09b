"""Reconcile the certificates of a cluster: a round reads, decides (`certs.state`) and writes.

Each write succeeds only on the version that was read, so any number of replicas may run.
"""

import asyncio
import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from certs.authority import utc_now
from certs.certificates import Certificate
from certs.metrics import CertsMetrics
from certs.settings import CertsSettings
from certs.state import BUNDLE, CA_KEY, CA_KEYS, SERVING_KEY, SERVING_KEYS, next_step
from certs.store import Snapshot, read_snapshot
from services.kube.client import ClusterClient, Conflict
from services.kube.objects import ensure_secret, write_secret
from services.process.errors import ClusterError

ATTEMPTS: Final = 20
"""Conflicts in a row after which a round fails."""

CLOCK_TOLERANCE: Final = timedelta(minutes=5)
"""Difference to the API server's clock up to which certificates are issued."""

PATIENCE: Final = 600.0
"""Seconds beyond `settle` for which `renew` waits for the bundle."""

log = structlog.get_logger(component="certs")


@dataclass(frozen=True, slots=True)
class RoundReport:
    """The state after a round."""

    authorities: tuple[Certificate, ...]
    """The trusted CAs; the one that signs comes first."""
    serving: Certificate | None
    waiting: bool
    """Whether the serving certificate is due but a new CA has to settle first."""
    missing: tuple[str, ...]
    """Webhook configurations that do not exist."""
    warnings: tuple[str, ...]
    """What somebody should know."""
    problems: tuple[str, ...]
    """What could not be done, one sentence each."""


class CertificateReconciler:
    """Reconciles two Secrets and the bundles of webhook configurations.

    The keys `lost` of the Secrets count as lost, each until it is replaced.
    """

    def __init__(
        self,
        settings: CertsSettings,
        metrics: CertsMetrics,
        lost: tuple[str, ...] = (),
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._lost = {*lost}
        self._now = now
        self._in_place: tuple[bytes, datetime] | None = None
        """The bundle that all configurations have, and since when as far as is known here."""

    async def run_once(self, client: ClusterClient) -> RoundReport:
        """Do one round."""
        for _ in range(ATTEMPTS):
            try:
                return await self._attempt(client)
            except Conflict as conflict:
                # The next attempt starts with what the other replica wrote.
                self._metrics.conflicts.inc()
                log.debug("another replica was faster; using what it wrote", reason=str(conflict))
            await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311 - jitter, not a secret
        raise ClusterError(
            f"the Secrets or webhook configurations keep changing: {ATTEMPTS} writes in a row"
            " conflicted"
        )

    async def _attempt(self, client: ClusterClient) -> RoundReport:
        at = self._settings
        read, now = await read_snapshot(client, at, ensure_secret), self._now()
        self._check_clock(read.authority.object.date, now)
        stored = read.certificates(self._lost)
        step = next_step(stored, at.names, now)
        held = read.authority.data
        if step.authority != {key: held[key] for key in CA_KEYS & held.keys()}:
            await write_secret(client, read.authority, step.authority, ours=CA_KEYS)
        if step.created:
            self._lost.discard(CA_KEY)
            self._metrics.issued.labels("ca").inc()
            log.info("CA created", secret=at.ca_secret, reason=step.created)
        problems = await self._write_bundles(client, read, step.serving[BUNDLE], now)
        settled = self._in_place is not None and now - self._in_place[1] >= at.settle
        waiting = bool(step.renewal) and step.waits and not settled
        if step.renewal and not waiting:
            await write_secret(client, read.serving, step.serving, ours=SERVING_KEYS)
            self._lost.clear()
            self._metrics.issued.labels("serving").inc()
            log.info("serving certificate issued", secret=at.tls_secret, reason=step.renewal)
            stored = dataclasses.replace(stored, serving=step.serving)
        absences = [
            f"{name} does not exist, so it has no bundle: names are fixed, a kustomize namePrefix"
            " is not supported; else set --webhook-config"
            for name in read.missing
        ]
        serving = next(iter(stored.chain), None)
        warnings = (*step.warnings, *absences)
        return RoundReport(step.trusted, serving, waiting, read.missing, warnings, problems)

    def _check_clock(self, date: str, now: datetime) -> None:
        # Ours dates certificates: API servers would refuse those from their future or past.
        try:
            theirs = parsedate_to_datetime(date)
        except ValueError:  # the answer has no date
            return
        offset = theirs.replace(tzinfo=theirs.tzinfo or UTC) - now
        self._metrics.clock_offset.set(offset.total_seconds())
        if abs(offset) <= CLOCK_TOLERANCE:
            return
        self._in_place = None  # counted again by a clock that agrees
        side = "behind" if offset > timedelta(0) else "ahead of"
        raise ClusterError(
            f"this machine's clock is {abs(offset)} {side} the API server's: no certificate is"
            " issued until they agree; check the time synchronization of both"
        )

    async def _write_bundles(
        self, client: ClusterClient, read: Snapshot, bundle: bytes, now: datetime
    ) -> tuple[str, ...]:
        """Write the bundle where it differs; returns what kept it from its place."""
        problems, written = [*read.problems], False
        for name in read.configurations:
            try:
                if await read.write_bundle(client, name, bundle):
                    written = True
                    self._metrics.injections.inc()
                    log.info("bundle written to the webhook configuration", configuration=name)
            except Conflict:
                raise
            # The right to write one configuration may be missing: the others get the bundle, and
            # the CA that signs stays.
            except ClusterError as error:
                problems.append(f"the bundle cannot be written to {name}: {error}")
        if problems or written:  # it settles from the round that reads it back
            self._in_place = None
        elif self._in_place is None or self._in_place[0] != bundle:
            self._in_place = (bundle, now)
        return tuple(problems)


async def renew(client: ClusterClient, settings: CertsSettings, *, authority: bool) -> None:
    """Renew the serving certificate now; with `authority`, create the CA that signs it."""
    metrics = CertsMetrics(CollectorRegistry())  # nobody reads those of a command
    lost = (SERVING_KEY, CA_KEY) if authority else (SERVING_KEY,)
    reconciler = CertificateReconciler(settings, metrics, lost)
    try:
        async with asyncio.timeout(settings.settle.total_seconds() + PATIENCE):
            while (report := await reconciler.run_once(client)).waiting or report.problems:
                if report.problems:
                    raise ClusterError("; ".join(report.problems))
                await asyncio.sleep(0.5)
    # Somebody keeps writing another bundle, or takes ours out.
    except TimeoutError as error:
        raise ClusterError("the bundle does not stay in the webhook configurations") from error
