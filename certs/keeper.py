"""Keeps the certificates of a cluster right, a round at a time, however many replicas do the same.

A round reads, in this order, the webhook configurations, the serving Secret and the CA's Secret,
and then writes, in the reverse one, what isn't as it should be. Each write counts only if what was
read is still what is there (409 otherwise: the round begins anew and takes what the winner wrote).

The order is what keeps a replica that was held up from undoing what others did meanwhile. What it
writes follows from the CA's Secret as it read it. If that has changed since, then either what it is
about to write to has been written for the new one already, after it was read, and the write fails;
or it has not, and then it is still right, since the old bundle trusts all that is served until the
new one has been seen in the configurations.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

import structlog
from cryptography import x509

from certs.clock import Clock
from certs.reading import certificates_in
from certs.serving import BUNDLE, chain_of, judge, live_chain, new_pair
from certs.serving import KEYS as SERVING_KEYS
from certs.trust import KEYS as TRUST_KEYS
from certs.trust import Rules, Surroundings, Trust, next_trust
from services.kube.client import BadStatus, ClusterClient
from services.kube.objects import (
    PLURALS,
    Configuration,
    Conflict,
    Owner,
    Secret,
    put_bundle,
    read_configuration,
    read_secret,
    write_secret,
)
from services.process.errors import CertificateError, ClusterError

ATTEMPTS: Final = 20
"""Times that a round begins anew because others were faster, before it counts as failed."""

Behind: TypeAlias = Callable[[Trust], Awaitable[tuple[str, ...]]]
"""Tells who still shows a certificate of an old CA, for whom that CA stays."""

log = structlog.get_logger(room="certs")


async def nobody(_: Trust) -> tuple[str, ...]:
    """Nobody is asked, nobody is behind: an old CA goes when its time is over."""
    return ()


@dataclass(frozen=True, slots=True)
class Places:
    """Where the certificates are.

    Attributes:
        namespace: Of both Secrets and of the webhook's Service.
        authority: Name of the CA's Secret.
        serving: Name of the serving Secret.
        service: Name of the webhook's Service.
        configurations: Names of webhook configurations, mutating and validating.
        hosts: Names of the serving certificate, for webhooks that are called by URL.
    """

    namespace: str
    authority: str
    serving: str
    service: str
    configurations: tuple[str, ...]
    hosts: frozenset[str] = frozenset()

    @property
    def owner(self) -> Owner:
        """Which entries of the configurations are ours."""
        return Owner(self.namespace, self.service, self.hosts)


@dataclass(slots=True)
class Orders:
    """What is to be made anew although it isn't due; struck out once it is done."""

    authority: bool = False
    serving: bool = False


@dataclass(slots=True)
class Counts:
    """What has been done since the start.

    Attributes:
        written: Certificates that we made and that counted, by `ca` and `serving`.
        injected: Bundles put into configurations.
        conflicts: Writes that somebody else's came before.
    """

    written: dict[str, int] = field(default_factory=lambda: {"ca": 0, "serving": 0})
    injected: int = 0
    conflicts: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How things are after a round.

    Attributes:
        trust: Whom the API server is to trust.
        serving_ends: When the serving certificate ends.
        moving: Whether the serving certificate is still of an old CA.
        missing: Configurations that aren't there.
        problems: What couldn't be done, a sentence each.
        behind: For whom an old CA stays although its time is over.
    """

    trust: Trust
    serving_ends: datetime | None
    moving: bool = False
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


@dataclass(slots=True)
class _Read:
    """The configurations as a round has read them."""

    found: list[Configuration] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def trusted(self, owner: Owner) -> list[x509.Certificate]:
        bundles = [bundle for one in self.found for bundle in one.bundles(owner)]
        return [each for bundle in bundles for each in certificates_in(bundle).all]


class Keeper:
    """Keeps two Secrets and the bundles in webhook configurations right.

    Args:
        places: Where they are.
        rules: How they are to be.
        clock: The time.
        orders: What is to be made anew in any case.
        behind: Asked before an old CA goes.
    """

    def __init__(
        self,
        places: Places,
        rules: Rules,
        clock: Clock,
        orders: Orders | None = None,
        behind: Behind = nobody,
    ) -> None:
        self.counts = Counts()
        self.orders = orders or Orders()
        self._places = places
        self._rules = rules
        self._clock = clock
        self._behind = behind
        self._held: tuple[bytes, datetime] | None = None

    async def round(self, client: ClusterClient) -> Outcome:
        """Looks at everything and puts right what isn't.

        Args:
            client: Whom to ask.

        Raises:
            CertificateError: What is in the CA's Secret is for a person to see to.
            ClusterError: The API server is away, or says no.
        """
        for _ in range(ATTEMPTS):
            try:
                return await self._attempt(client)
            except Conflict as conflict:
                self.counts.conflicts += 1
                log.debug("somebody else was faster, what they wrote is taken", seen=str(conflict))
            await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311 - jitter, not a secret
        raise ClusterError(
            f"the Secrets or webhook configurations are being changed all the time: {ATTEMPTS}"
            " attempts in a row came too late"
        )

    async def _attempt(self, client: ClusterClient) -> Outcome:
        places = self._places
        read = await self._configurations(client)
        serving = await self._secret(client, places.serving)
        authority = await self._secret(client, places.authority)
        now = self._clock.now()
        trust, behind = await self._see_to_trust(client, authority, serving, read, now)
        settled = await self._see_to_bundles(client, read, trust.bundle, now)
        serving, waits = await self._see_to_serving(client, serving, trust, settled=settled)
        chain = chain_of(serving.data)
        return Outcome(
            trust,
            chain[0].not_valid_after_utc if chain else None,
            moving=waits,
            missing=tuple(read.missing),
            problems=tuple(read.problems),
            behind=behind,
        )

    async def _secret(self, client: ClusterClient, name: str) -> Secret:
        secret = await read_secret(client, self._places.namespace, name)
        self._clock.hear(secret.object.date)
        return secret

    async def _configurations(self, client: ClusterClient) -> _Read:
        read = _Read()
        for plural in PLURALS:
            for name in self._places.configurations:
                try:
                    found = await read_configuration(client, plural, name)
                except BadStatus as error:
                    read.problems.append(str(error))
                    continue
                if found is None:
                    read.missing.append(f"{plural}/{name}")
                else:
                    read.found.append(found)
        return read

    async def _see_to_trust(
        self, client: ClusterClient, held: Secret, serving: Secret, read: _Read, now: datetime
    ) -> tuple[Trust, tuple[str, ...]]:
        chain = live_chain(serving.data, now)
        around = Surroundings(chain, read.trusted(self._places.owner))
        where = f"{self._places.namespace}/{self._places.authority}"
        behind: tuple[str, ...] = ()
        try:
            step = next_trust(held.data, around, self._rules, now, force=self.orders.authority)
            if step.leaves and (behind := await self._behind(step.leaves)):
                step = next_trust(held.data, replace(around, behind=True), self._rules, now)
        except CertificateError as error:
            raise CertificateError(f"Secret {where}: {error}") from error
        data = step.trust.data()
        if data != {key: held.data[key] for key in TRUST_KEYS if key in held.data}:
            await write_secret(client, held, data, ours=TRUST_KEYS)
            for reason in step.reasons:
                log.info("CA seen to", secret=where, reason=reason, trusted=len(step.trust.old) + 1)
            if step.changed:
                self.counts.written["ca"] += 1
        self.orders.authority = False
        return step.trust, behind

    async def _see_to_bundles(
        self, client: ClusterClient, read: _Read, bundle: bytes, now: datetime
    ) -> bool:
        """Puts the bundle in; returns whether it has been in all configurations for long enough."""
        for one in read.found:
            try:
                changed = await put_bundle(client, one, bundle, self._places.owner)
            except Conflict:
                raise
            except ClusterError as error:
                read.problems.append(f"the bundle can't be put into {one.name}: {error}")
                continue
            if changed is not None:
                self.counts.injected += 1
                log.info("bundle put into the webhook configuration", configuration=one.name)
        if read.problems:
            self._held = None
            return False
        if self._held is None or self._held[0] != bundle:
            self._held = (bundle, now)
        return now - self._held[1] >= self._rules.settle

    async def _see_to_serving(
        self, client: ClusterClient, held: Secret, trust: Trust, *, settled: bool
    ) -> tuple[Secret, bool]:
        """Returns the serving Secret as it is then, and whether its renewal has to wait."""
        now = self._clock.now()
        verdict = judge(held.data, trust, self._rules, now)
        reason = verdict.broken or verdict.due or ("asked for" if self.orders.serving else "")
        # Of a stranger it can't be told whether the API server trusts it while nobody may look.
        blind = verdict.stranger and self._held is None
        if not reason or blind or (verdict.moves and not settled):
            return await self._see_to_copy(client, held, trust), bool(reason)
        data, ends = new_pair(trust, self._rules, now)
        written = await write_secret(client, held, data, ours=SERVING_KEYS)
        self.orders.serving = False
        self.counts.written["serving"] += 1
        where = f"{self._places.namespace}/{self._places.serving}"
        repaired = verdict.broken and any(map(held.data.get, SERVING_KEYS))
        say = log.warning if repaired else log.info
        say("serving certificate issued", secret=where, reason=reason, ends=f"{ends:%F %T}")
        return written, False

    async def _see_to_copy(self, client: ClusterClient, held: Secret, trust: Trust) -> Secret:
        """The bundle lies beside the pair too, for people and for `certs verify`."""
        if held.data.get(BUNDLE) == trust.bundle:
            return held
        return await write_secret(
            client, held, {**_ours(held.data), BUNDLE: trust.bundle}, ours=SERVING_KEYS
        )


def _ours(data: Mapping[str, bytes]) -> dict[str, bytes]:
    return {key: data[key] for key in SERVING_KEYS if key in data}
