"""Renewals by replicas that race each other, watched by clients that speak TLS to what is served.

Webhooks follow the serving Secret some rounds late, as mounted Secrets do, and clients know the
bundle of now or of a round ago, as API servers may. A round is a second of the keepers' clock, in
which every certificate is due; the CA is due every now and then, its Secret is emptied by hand, and
replicas are killed in the middle of a round. No handshake may be refused.
"""

import asyncio
import contextlib
import random
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.process.tls import CertificateSource
from simulator.apiserver.resources import SECRETS
from simulator.apiserver.standin import ApiServerStandIn
from simulator.apiserver.store import Change
from simulator.apiserver.wire import decode
from tests.certs.cluster import CA, HOST, TLS, Cluster, Kept, bundles, edit_secret, secret
from tests.support import soak, soaking

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(1800)]

REPLICAS = 5
LAG = 3
"""Rounds that a webhook may be behind the Secret; the overlap is longer."""


@dataclass
class Mounted:
    """A webhook's folder, in which the kubelet swaps what the Secret holds, and its server."""

    folder: Path
    api: ApiServerStandIn
    behind: int = 0
    version: int = 0
    port: int = 0
    source: CertificateSource = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.sync()
        self.source = CertificateSource(*self.paths)
        self.source.load()

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.folder / "data" / "tls.crt", self.folder / "data" / "tls.key"

    def sync(self) -> None:
        self.version += 1
        fresh = self.folder / str(self.version)
        fresh.mkdir()
        for name, content in secret(self.api, TLS).items():
            (fresh / name).write_bytes(content)
        link = self.folder / "next"
        link.symlink_to(fresh.name)
        link.replace(self.folder / "data")
        self.behind = 0

    def later(self, chance: random.Random) -> None:
        """A round has passed."""
        self.behind += 1
        if self.behind >= LAG or chance.random() < 0.4:
            self.sync()
            self.source.refresh()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello\n")
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=self.source.context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()


async def shake_hands(port: int, bundle: bytes) -> None:
    """A client that trusts this bundle only, and asks for the Service's name.

    Raises:
        ssl.SSLError: It refuses what it is shown.
    """
    context = ssl.create_default_context(cadata=bundle.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=HOST
    )
    assert await reader.readline() == b"hello\n"
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class Winners:
    """The serving certificates that were written, in order, as the API server has seen it."""

    def __init__(self, api: ApiServerStandIn) -> None:
        self.seen = [secret(api, TLS).get("tls.crt", b"")]
        self.authorities = {secret(api, CA).get("ca.crt", b"")}
        api.store.listen(SECRETS, self._changed)
        self._api = api

    def _changed(self, change: Change) -> None:
        name = decode(change.data)["metadata"]["name"]
        if name == TLS and (now := secret(self._api, TLS).get("tls.crt", b"")) != self.seen[-1]:
            self.seen.append(now)
        if name == CA:
            self.authorities.add(secret(self._api, CA).get("ca.crt", b""))


async def cut_short(round_of_one: Callable[[], "asyncio.Task[object]"], steps: int) -> None:
    """Begins a round, and kills it after so many turns of the event loop."""
    task = round_of_one()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_of_racing_replicas_one_wins_and_no_handshake_is_refused(
    cluster: Cluster, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    renewals = 1000 if soaking() else 40
    chance = random.Random(seed := soak(short=0, full=0).seed)  # noqa: S311 - chance of a test
    figure(f"seed {seed}")
    api, clock = cluster.api, cluster.clock
    day = timedelta(days=1)
    cluster.rule(
        lifetime=day,
        share=1 / day.total_seconds(),
        authority_lifetime=10 * day,
        settle=timedelta(seconds=2),
        overlap=timedelta(seconds=LAG + 2),
    )
    keepers = [await cluster.keeper() for _ in range(REPLICAS)]
    await asyncio.gather(*[each.round() for each in keepers])
    winners = Winners(api)
    shaken = rounds = 0
    async with AsyncExitStack() as stack:
        webhooks = [Mounted(tmp_path / f"webhook-{number}", api) for number in range(3)]
        for webhook in webhooks:
            await stack.enter_async_context(webhook.serving())
        known: deque[bytes] = deque(maxlen=2)
        while len(winners.seen) - 1 < renewals:
            [bundle] = set(bundles(api))
            known.append(bundle)
            rounds += 1
            clock.pass_(seconds=1)
            if rounds % 30 == 15 or chance.random() < 0.02:
                edit_secret(api, CA, ca_crt=None, ca_key=None, old_crt=None, old_until=None)
            before = len(winners.seen)
            clients = [
                shake_hands(webhook.port, bundle) for webhook in webhooks for bundle in set(known)
            ]
            shaken += len(clients)
            await a_round(keepers, clients, chance)
            assert len(winners.seen) - before <= 1, "a loser has written too"
            for webhook in webhooks:
                webhook.later(chance)
            if chance.random() < 0.05:
                keepers[chance.randrange(REPLICAS)] = await cluster.keeper()  # started anew
    lost = sum(seen.code == 409 for seen in api.seen)
    figure(
        f"{renewals} renewals in {rounds} rounds, {len(winners.authorities)} CAs, {lost} conflicts,"
        f" {shaken} handshakes, none refused"
    )
    assert len(set(winners.seen)) == len(winners.seen)
    assert len(winners.authorities) >= 2
    assert lost > renewals, "there was hardly a race"


async def a_round(
    keepers: list[Kept], clients: list[Coroutine[Any, Any, None]], chance: random.Random
) -> None:
    """All replicas at once, one of them perhaps killed, while clients come."""

    def begin(kept: Kept) -> "asyncio.Task[object]":
        return asyncio.ensure_future(kept.round())

    victim = chance.choice(keepers) if chance.random() < 0.1 else None
    working = [begin(each) for each in keepers if each is not victim]
    killing = [cut_short(lambda: begin(victim), chance.randrange(200))] if victim else []
    await asyncio.gather(*working, *killing, *clients)
