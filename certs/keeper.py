"""Reconcile the certificates of a cluster: a round reads, decides (`certs.state`) and writes.

Each write succeeds only on the version that was read, so any number of replicas may run.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from certs.authority import utc_now
from certs.certificates import Certificate, skipped_certificates
from certs.metrics import CertsMetrics
from certs.settings import CertsSettings
from certs.state import (
    CA_KEYS,
    SERVING_KEYS,
    Request,
    Step,
    Stored,
    next_step,
    serving_certificate,
)
from certs.store import Configurations, read_configurations
from services.kube.client import ClusterClient, Conflict
from services.kube.objects import Secret, ensure_secret, write_secret
from services.process.errors import CertificateError, ClusterError
from services.process.outage import Outage

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
    serving_ends: datetime | None
    waiting: bool
    """Whether the serving certificate is due but a new CA has to settle first."""
    missing: tuple[str, ...]
    """Webhook configurations that do not exist."""
    problems: tuple[str, ...]
    """What could not be done, one sentence each."""


class CertificateReconciler:
    """Reconciles two Secrets and the bundles of webhook configurations."""

    def __init__(
        self,
        settings: CertsSettings,
        metrics: CertsMetrics,
        request: Request = "",
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._request = request
        self._now = now
        self._in_place: tuple[bytes, datetime] | None = None
        """The bundle that all configurations have, and since when as far as is known here."""
        self._skipped = Outage(
            log, "unusable certificates skipped", "all certificates can be used again"
        )
        self._doubt = Outage(
            log, "the CA in use is unusual; it keeps signing", "the CA in use is usual again"
        )

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
        # Read in the reverse order of writing, so that a delayed replica undoes nothing. If the
        # Secret of the CA has changed since, either the object that is written next has changed
        # too, and the write fails; or the write is right: the old bundle trusts everything that is
        # served until the new one has been read back from the configurations.
        at = self._settings
        configurations = await read_configurations(client, at)
        serving = await ensure_secret(client, at.namespace, at.tls_secret)
        authority = await ensure_secret(client, at.namespace, at.ca_secret)
        now = self._now()
        self._check_clock(authority.object.date, now)
        self._report_skipped(configurations, serving, authority)
        stored = Stored(
            authority.data,
            serving.data,
            configurations.bundles,
            complete=not configurations.problems,
        )
        try:
            step = next_step(stored, at.names, now, self._request)
        except CertificateError as error:
            raise CertificateError(f"Secret {at.namespace}/{at.ca_secret}: {error}") from error
        self._doubt.update(step.doubt)
        data = step.authority_data()
        if data != {key: authority.data[key] for key in CA_KEYS & authority.data.keys()}:
            await write_secret(client, authority, data, ours=CA_KEYS)
        if step.created:
            self._request = self._request and "serving"
            self._metrics.issued.labels("ca").inc()
            log.info("CA created", secret=at.ca_secret, reason=step.created)
        settled = await self._write_bundles(client, configurations, step.bundle, now)
        waiting = bool(step.renewal) and step.waits and not settled
        if step.renewal and not waiting:
            serving = await self._issue(client, serving, step, now)
        served = serving_certificate(serving.data)
        return RoundReport(
            step.trusted,
            served.ends if served else None,
            waiting,
            tuple(configurations.missing),
            tuple(configurations.problems),
        )

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

    def _report_skipped(self, configurations: Configurations, *secrets: Secret) -> None:
        texts = [
            (f"{one.object.path}, {key}", text) for one in secrets for key, text in one.data.items()
        ]
        self._skipped.update("; ".join(skipped_certificates((*texts, *configurations.bundles))))

    async def _write_bundles(
        self, client: ClusterClient, configurations: Configurations, bundle: bytes, now: datetime
    ) -> bool:
        """Write the bundle where it differs; returns whether it has settled."""
        in_place = True
        for name in configurations.present:
            try:
                written = await configurations.write(client, name, bundle)
            except Conflict:
                raise
            # The right to write one configuration may be missing: the others get the bundle, and
            # the CA that signs stays.
            except ClusterError as error:
                text = f"the bundle cannot be written to {name}: {error}"
                configurations.problems.append(text)
                continue
            if written:
                in_place = False  # it settles from the round that reads it back
                self._metrics.injections.inc()
                log.info("bundle written to the webhook configuration", configuration=name)
        if configurations.problems or not in_place:
            self._in_place = None
            return False
        if self._in_place is None or self._in_place[0] != bundle:
            self._in_place = (bundle, now)
        return now - self._in_place[1] >= self._settings.settle

    async def _issue(
        self, client: ClusterClient, serving: Secret, step: Step, now: datetime
    ) -> Secret:
        written = await write_secret(client, serving, step.issue(now), ours=SERVING_KEYS)
        self._request = ""
        self._metrics.issued.labels("serving").inc()
        secret = self._settings.tls_secret
        log.info("serving certificate issued", secret=secret, reason=step.renewal)
        return written


async def renew(
    client: ClusterClient, settings: CertsSettings, *, authority: bool
) -> AsyncIterator[RoundReport]:
    """Renew the serving certificate now; with `authority`, create the CA that signs it.

    Yields the report of each round; the last one does not wait.
    """
    metrics = CertsMetrics(CollectorRegistry())  # nobody reads those of a command
    reconciler = CertificateReconciler(settings, metrics, "ca" if authority else "serving")
    deadline = time.monotonic() + settings.settle.total_seconds() + PATIENCE
    waiting = True
    while waiting:
        report = await reconciler.run_once(client)
        if report.problems:
            raise ClusterError("; ".join(report.problems))
        yield report
        waiting = report.waiting
        # Somebody keeps writing another bundle, or takes ours out.
        if waiting and time.monotonic() > deadline:
            raise ClusterError("the bundle does not stay in the webhook configurations")
        await asyncio.sleep(0.5 if waiting else 0)
