"""Reconcile the certificates of a cluster: a round reads, decides (`certs.state`) and writes.

Each write succeeds only on the version that was read, so any number of replicas may run.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import structlog

from certs.authority import utc_now
from certs.certificates import Certificate, read_certificates
from certs.settings import CertsSettings
from certs.state import (
    BUNDLE,
    CA_KEY,
    CA_KEYS,
    SERVING_CERTIFICATE,
    SERVING_KEYS,
    next_step,
)
from certs.store import Snapshot, read_snapshot
from services.kube.client import ClusterClient, Conflict
from services.kube.objects import ensure_secret, write_secret
from services.process.errors import ClusterError

ATTEMPTS: Final = 20
"""Conflicts in a row after which a round fails."""

PATIENCE: Final = 600.0
"""Seconds beyond `settle` for which `renew` waits for the bundle."""

T = TypeVar("T")

log = structlog.get_logger(component="certs")


@dataclass(frozen=True, slots=True)
class RoundReport:
    """The state after a round."""

    authorities: tuple[Certificate, ...]
    """The trusted CAs; the one that signs comes first."""
    serving: Certificate | None
    waiting: bool
    """Whether the serving certificate is due but a new CA has to settle first."""
    problems: tuple[str, ...]
    """What could not be done, one sentence each."""


class CertificateReconciler:
    """Reconciles two Secrets and the bundles of webhook configurations."""

    def __init__(self, settings: CertsSettings, now: Callable[[], datetime] = utc_now) -> None:
        self._settings = settings
        self._now = now
        self._in_place: tuple[bytes, datetime] | None = None
        """The bundle that all configurations have, and since when as far as is known here."""
        self._unreadable = 0
        """How many certificates could not be read."""

    async def run_once(self, client: ClusterClient) -> RoundReport:
        """Do one round."""
        return await _retried(lambda: self._attempt(client))

    async def _attempt(self, client: ClusterClient) -> RoundReport:
        at = self._settings
        read, now = await read_snapshot(client, at, create=True), self._now()
        stored = read.certificates
        if stored.unreadable > self._unreadable:
            log.warning(
                "certificates that can't be read leave the bundle", number=stored.unreadable
            )
        self._unreadable = stored.unreadable
        step = next_step(stored, at.names, now)
        held = read.authority.data
        if step.authority != {key: held[key] for key in CA_KEYS & held.keys()}:
            await write_secret(client, read.authority, step.authority, ours=CA_KEYS)
        if step.created:
            log.info("CA created", secret=at.ca_secret, reason=step.created)
        problems = await self._write_bundles(client, read, step.serving[BUNDLE], now)
        settled = (
            self._in_place is not None and (now - self._in_place[1]).total_seconds() >= at.settle
        )
        waiting, served = bool(step.renewal) and step.waits and not settled, read.serving.data
        if step.renewal and not waiting:
            await write_secret(client, read.serving, step.serving, ours=SERVING_KEYS)
            served = step.serving
            log.info("serving certificate issued", secret=at.tls_secret, reason=step.renewal)
        serving = next(iter(read_certificates(served.get(SERVING_CERTIFICATE, b""))), None)
        return RoundReport(step.trusted, serving, waiting, problems)

    async def _write_bundles(
        self, client: ClusterClient, read: Snapshot, bundle: bytes, now: datetime
    ) -> tuple[str, ...]:
        """Write the bundle where it differs; returns what kept it from its place."""
        problems, written = list[str](), False
        for name in read.configurations:
            try:
                if await read.write_bundle(client, name, bundle):
                    written = True
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


async def renew(client: ClusterClient, at: CertsSettings, *, authority: bool) -> None:
    """Renew the serving certificate now, or with `authority` the CA and then what it has signed."""
    # Without these keys, whoever sees it first replaces the pair, or announces a new CA.
    name, key, ours = at.tls_secret, BUNDLE, SERVING_KEYS
    if authority:
        name, key, ours = at.ca_secret, CA_KEY, CA_KEYS

    async def remove_key() -> None:
        secret = await ensure_secret(client, at.namespace, name)
        left = {one: value for one, value in secret.data.items() if one in ours - {key}}
        await write_secret(client, secret, left, ours=ours)

    await _retried(remove_key)
    reconciler = CertificateReconciler(at)
    try:
        async with asyncio.timeout(at.settle + PATIENCE):
            while (report := await reconciler.run_once(client)).waiting or report.problems:
                if report.problems:
                    raise ClusterError("; ".join(report.problems))
                await asyncio.sleep(0.5)
    # Somebody keeps writing another bundle, or takes ours out.
    except TimeoutError as error:
        raise ClusterError("the bundle does not stay in the webhook configurations") from error


async def _retried(attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of an attempt that no other replica preceded."""
    for _ in range(ATTEMPTS):
        with contextlib.suppress(Conflict):
            return await attempt()
        # Another replica was faster; the next attempt starts with what it wrote.
        await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311 - jitter, not a secret
    raise ClusterError(
        f"the Secrets or webhook configurations keep changing: {ATTEMPTS} writes in a row"
        " conflicted"
    )
