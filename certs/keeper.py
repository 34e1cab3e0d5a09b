"""Reconcile the certificates of a cluster: one round reads, decides (`certs.policy`) and writes.

Each write succeeds only on the version that was read, so any number of replicas may run.
"""

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Literal, TypeAlias

import structlog
from prometheus_client import CollectorRegistry

from certs.authority import utc_now
from certs.certificates import Certificate, find_signer, general_name, skipped_certificates
from certs.metrics import CertsMetrics
from certs.policy import (
    BUNDLE,
    CA_KEYS,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    SERVING_KEYS,
    CaState,
    CertificatePolicy,
    check_pair,
    new_pair,
    next_ca,
    serving_certificate,
    stored_authorities,
    usable_certificate,
)
from certs.store import (
    CertificateLocations,
    Configurations,
    read_configurations,
    write_bundle,
)
from services.kube.client import ClusterClient, Conflict
from services.kube.objects import Secret, ensure_secret, write_secret
from services.process.errors import CertificateError, ClusterError
from services.process.pairs import load_pair

ATTEMPTS: Final = 20
"""Conflicts in a row after which a round fails."""

CLOCK_TOLERANCE: Final = timedelta(minutes=5)
"""Difference to the API server's clock up to which certificates are issued."""

FOREVER: Final = timedelta.max

Forced: TypeAlias = Literal["", "ca", "serving"]
"""What is renewed although it is not due."""

log = structlog.get_logger(component="certs")


@dataclass(frozen=True, slots=True)
class RoundReport:
    """The state after a round."""

    authorities: tuple[Certificate, ...]
    """The trusted CAs; the one that signs comes first."""
    serving_ends: datetime | None
    waiting: bool = False
    """Whether the serving certificate is due but a new CA has to settle first."""
    missing: tuple[str, ...] = ()
    """Webhook configurations that do not exist."""
    problems: tuple[str, ...] = ()
    """What could not be done, one sentence each."""


class CertificateReconciler:
    """Reconciles two Secrets and the bundles of webhook configurations."""

    def __init__(
        self,
        policy: CertificatePolicy,
        at: CertificateLocations,
        metrics: CertsMetrics,
        force: Forced = "",
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._policy = policy
        self._at = at
        self._metrics = metrics
        self._force = force
        self._now = now
        self._in_place: tuple[bytes, datetime] | None = None
        """The bundle that all configurations have, and since when as far as is known here."""
        self._skipped: set[str] = set()
        """The unusable certificates that were logged."""
        self._doubt = ""
        """The doubt about the CA that was logged."""

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
        configurations = await read_configurations(client, self._at)
        serving = await ensure_secret(client, self._at.namespace, self._at.serving)
        held = await ensure_secret(client, self._at.namespace, self._at.authority)
        now = self._now()
        self._log_skipped(configurations, serving, held)
        configured = configurations.authorities(self._at)
        self._check_clock(held.object.date, now)
        usable = usable_certificate(serving.data, now)
        state = await self._reconcile_authority(client, held, usable, configured, now)
        settled = await self._write_bundles(client, configurations, state.bundle, now)
        serving, waiting = await self._reconcile_serving(
            client,
            serving,
            state,
            now,
            settled=settled,
            configurations_read=not configurations.problems,
        )
        served = serving_certificate(serving.data)
        return RoundReport(
            state.authorities,
            served.ends if served else None,
            waiting=waiting,
            missing=tuple(configurations.missing),
            problems=tuple(configurations.problems),
        )

    def _log_skipped(self, configurations: Configurations, *secrets: Secret) -> None:
        """Log once why certificates in Secrets and bundles are not used."""
        texts = [
            (f"{one.object.path}, {key}", text) for one in secrets for key, text in one.data.items()
        ]
        for one in configurations.present:
            texts += [(one.name, bundle) for bundle in one.bundles(self._at)]
        found = set(skipped_certificates(texts))
        for skipped in sorted(found - self._skipped):
            log.warning("unusable certificate skipped", where=skipped)
        self._skipped = found

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

    async def _reconcile_authority(
        self,
        client: ClusterClient,
        held: Secret,
        serving: Certificate | None,
        configured: Sequence[Certificate],
        now: datetime,
    ) -> CaState:
        where = f"{self._at.namespace}/{self._at.authority}"
        try:
            state = next_ca(
                held.data, serving, configured, self._policy, now, force=self._force == "ca"
            )
        except CertificateError as error:
            raise CertificateError(f"Secret {where}: {error}") from error
        if state.doubt and state.doubt != self._doubt:
            log.warning("the CA in use is unusual; it keeps signing", secret=where, why=state.doubt)
        self._doubt = state.doubt
        if state.data() != {key: held.data[key] for key in CA_KEYS & held.data.keys()}:
            await write_secret(client, held, state.data(), ours=CA_KEYS)
            if state.created:
                self._metrics.issued.labels("ca").inc()
            log.info(
                "CAs written",
                secret=where,
                reason=state.created,
                trusted_cas=len(state.authorities),
            )
        if self._force == "ca":
            self._force = ""
        return state

    async def _write_bundles(
        self,
        client: ClusterClient,
        configurations: Configurations,
        bundle: bytes,
        now: datetime,
    ) -> bool:
        """Write the bundle where it differs; returns whether it has settled."""
        in_place = True
        for one in configurations.present:
            try:
                written = await write_bundle(client, one, bundle, self._at)
            except Conflict:
                raise
            # The right to write one configuration may be missing: the others get the bundle, and
            # the CA that signs stays.
            except ClusterError as error:
                configurations.problems.append(
                    f"the bundle cannot be written to {one.name}: {error}"
                )
                continue
            if written:
                in_place = False  # it settles from the round that reads it back
                self._metrics.injections.inc()
                log.info("bundle written to the webhook configuration", configuration=one.name)
        if configurations.problems or not in_place:
            self._in_place = None
            return False
        if self._in_place is None or self._in_place[0] != bundle:
            self._in_place = (bundle, now)
        return now - self._in_place[1] >= self._policy.settle

    async def _reconcile_serving(
        self,
        client: ClusterClient,
        held: Secret,
        state: CaState,
        now: datetime,
        *,
        settled: bool,
        configurations_read: bool,
    ) -> tuple[Secret, bool]:
        """Return the serving Secret as it is then, and whether its renewal waits."""
        status = check_pair(held.data, state, self._policy, now)
        reason = status.error or status.due or ("requested" if self._force == "serving" else "")
        # An unknown CA may be trusted by the configurations that could not be read.
        waits = (status.waits and not settled) or (status.untrusted and not configurations_read)
        if not reason or waits:
            return held, waits
        data, ends = new_pair(state, self._policy, now)
        _check_loading(data)
        written = await write_secret(client, held, data, ours=SERVING_KEYS)
        self._force = ""
        self._metrics.issued.labels("serving").inc()
        repaired = status.error and any(map(held.data.get, SERVING_KEYS))
        (log.warning if repaired else log.info)(
            "serving certificate issued",
            secret=f"{self._at.namespace}/{self._at.serving}",
            reason=reason,
            ends=f"{ends:%F %T}",
        )
        return written, False


def _check_loading(data: Mapping[str, bytes]) -> None:
    """Raise where the webhook could not load a new serving pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        load_pair(context, data[SERVING_CERTIFICATE], data[SERVING_KEY])
        context.load_verify_locations(cadata=data[BUNDLE].decode())
    except ssl.SSLError as error:
        raise CertificateError(
            f"OpenSSL cannot load what the CA signs ({error.reason or error}): replace ca.crt, or"
            " remove ca.key and ca.crt to get a new CA"
        ) from error


async def renew(
    client: ClusterClient,
    at: CertificateLocations,
    policy: CertificatePolicy,
    *,
    authority: bool,
    on_wait: Callable[[timedelta], None],
) -> RoundReport:
    """Renew the serving certificate now; with `authority`, create the CA that signs it.

    `on_wait` is called once if a new CA has to settle.
    """
    serving = serving_certificate((await ensure_secret(client, at.namespace, at.serving)).data)
    held = (await ensure_secret(client, at.namespace, at.authority)).data
    # A certificate of another CA may have any names, a stranger's too.
    signed = find_signer(serving, stored_authorities(held)) is not None
    names = map(general_name, serving.names) if serving and signed else ()
    # No old CA leaves the bundle: only `certs run` knows its overlap.
    policy = replace(policy, overlap=FOREVER, names=tuple(dict.fromkeys((*policy.names, *names))))
    metrics = CertsMetrics(CollectorRegistry())  # nobody reads those of a command
    reconciler = CertificateReconciler(policy, at, metrics, "ca" if authority else "serving")
    began = time.monotonic()
    waited = False
    while True:
        report = await reconciler.run_once(client)
        if report.problems:
            raise ClusterError("; ".join(report.problems))
        if not report.waiting:
            return report
        if not waited:
            waited = True
            on_wait(policy.settle)
        # Somebody keeps writing another bundle, or takes ours out.
        if time.monotonic() - began > policy.settle.total_seconds() + 600:
            raise ClusterError("the bundle does not stay in the webhook configurations")
        await asyncio.sleep(0.5)
