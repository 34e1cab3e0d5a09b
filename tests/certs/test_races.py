"""Renewals by replicas that race each other, watched by clients that speak TLS to what is served.

Webhooks follow the serving Secret some rounds late, as mounted Secrets do, and clients know the
bundle of now or of a round ago, as API servers may. A round is a second of the replicas' clock, and
certificates are due every few seconds; the CA's Secret is emptied by hand, and replicas are killed
in the middle of a round. No handshake may be refused.
"""

import asyncio
import contextlib
import random
import ssl
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from certs import certificates, state
from certs.authority import SERVING_LIFE
from certs.certificates import CLOCK_SKEW, bundle_pem
from services.process.tls import CertificateSource
from tests.certs.memory import CA, HOST, TLS, Cluster, Replica
from tests.support import soak, soaking

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

REPLICAS = 5
LAG = 3
"""Rounds that a webhook may be behind the Secret; the overlap is longer."""
LIFE = 7
"""Seconds after which a certificate is due; the overlap is shorter."""


class Mounted:
    """A webhook's folder, into which the kubelet writes what the Secret holds, and its TLS."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        folder.mkdir()
        self._cluster = cluster
        self._paths = folder / "tls.crt", folder / "tls.key"
        self._behind = 0
        self._write()
        self.source = CertificateSource(*self._paths)
        self.source.load()

    def _write(self) -> None:
        for path in self._paths:
            path.write_bytes(self._cluster.secret(TLS)[path.name])

    def later(self, chance: random.Random) -> None:
        """A round has passed."""
        self._behind += 1
        if self._behind >= LAG or chance.random() < 0.4:
            self._behind = 0
            self._write()
            self.source.refresh()


def shake_hands(server: ssl.SSLContext, bundle: bytes) -> None:
    """A client that trusts this bundle only, and asks for the Service's name.

    Raises:
        ssl.SSLError: It refuses what it is shown.
    """
    context = ssl.create_default_context(cadata=bundle.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(down, up, server_hostname=HOST)
    for end in (client, server.wrap_bio(up, down, server_side=True), client):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert client.version()


async def cut_short(round_of_one: Callable[[], "asyncio.Task[object]"], steps: int) -> None:
    """Begin a round, and kill it after so many turns of the event loop."""
    task = round_of_one()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_of_racing_replicas_one_wins_and_no_handshake_is_refused(
    tmp_path: Path, figure: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals = 1000 if soaking() else 8
    chance = random.Random(seed := soak(short=0, full=0).seed)  # noqa: S311 - chance of a test
    figure(f"seed {seed}")
    cluster = Cluster(chance)
    store = cluster.store
    cluster.clock.advance(hours=-6)  # TLS goes by the real clock, which must not be overtaken
    due, whole = (each + CLOCK_SKEW for each in (timedelta(seconds=LIFE), SERVING_LIFE))
    monkeypatch.setattr(certificates, "RENEWAL_SHARE", due / whole)
    monkeypatch.setattr(state, "OVERLAP", timedelta(seconds=LAG + 2))
    cluster.change_settings(settle=2.0)
    replicas = [cluster.replica() for _ in range(REPLICAS)]
    await asyncio.gather(*[each.run_once() for each in replicas])
    served, authorities, sizes = [cluster.serving], {cluster.bundle[0]}, {1}
    shaken = rounds = 0
    webhooks = [Mounted(tmp_path / f"webhook-{number}", cluster) for number in range(3)]
    known: deque[bytes] = deque(maxlen=2)
    while len(served) - 1 < renewals:
        known.append(bundle_pem(cluster.bundle))
        rounds += 1
        cluster.clock.advance(seconds=1)
        if chance.random() < 0.05:
            store.edit(CA, ca_crt=None, ca_key=None, old_crt=None)
        before = store.writes.count(TLS)
        for webhook, bundle in product(webhooks, set(known)):
            shake_hands(webhook.source.context, bundle)
            shaken += 1
        await a_round(replicas, chance)
        if cluster.serving != served[-1]:
            served.append(cluster.serving)
            assert store.writes.count(TLS) - before <= 2, "a loser has written too"
        authorities.add(cluster.bundle[0])
        sizes.add(len(cluster.bundle))
        for webhook in webhooks:
            webhook.later(chance)
        if chance.random() < 0.05:
            replicas[chance.randrange(REPLICAS)] = cluster.replica()  # a restart
    figure(
        f"{renewals} renewals in {rounds} rounds, {len(authorities)} CAs, {store.conflicts}"
        f" conflicts, {shaken} handshakes, none refused"
    )
    assert len(set(served)) == len(served)
    assert {1, 2} <= sizes, "no CA was replaced to the end"
    assert store.conflicts > renewals, "there was hardly a race"


async def a_round(replicas: list[Replica], chance: random.Random) -> None:
    """All replicas at once, one of them perhaps killed."""

    def start(replica: Replica) -> "asyncio.Task[object]":
        return asyncio.ensure_future(replica.run_once())

    victim = chance.choice(replicas) if chance.random() < 0.1 else None
    working = [start(each) for each in replicas if each is not victim]
    killing = [cut_short(lambda: start(victim), chance.randrange(40))] if victim else []
    await asyncio.gather(*working, *killing)
