"""Replicas of a webhook that are asked what they serve, before an old CA leaves the bundle."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from certs import replicas as module
from certs.authority import (
    Authority,
    certificate_pem,
    issue_serving,
    key_pem,
    make_authority,
    parse_names,
    utc_now,
)
from certs.keeper import Keeper, Orders
from certs.replicas import Replicas
from certs.trust import Trust
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import CA, HOST, PLACES, TLS, Cluster, Kept, secret, the_bundle
from tests.certs.test_process import start
from tests.support import Processes, eventually_async

pytestmark = pytest.mark.anyio


class Shown:
    """A TLS server whose certificate a test chooses, as a webhook whose files are replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.port = 0

    def pair(self, certificate: bytes, key: bytes) -> None:
        """What new handshakes are shown."""
        file = self._folder / "pair.pem"
        file.write_bytes(certificate + key)
        self._context.load_cert_chain(file)

    def of(self, authority: Authority) -> None:
        """A certificate of this CA."""
        made = issue_serving(authority, parse_names([HOST]), utc_now(), timedelta(days=1))
        self.pair(certificate_pem(made.certificate), key_pem(made.key))

    @contextlib.asynccontextmanager
    async def serving(self, address: str, port: int = 0) -> AsyncIterator[None]:
        def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(hang_up, address, port, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield


def two() -> tuple[Trust, Authority]:
    """A CA that has taken over, and the one before."""
    now, life = utc_now(), timedelta(days=10)
    old, new = make_authority(now, life), make_authority(now, life)
    return Trust(new, old=(old.certificate,), old_until=now), old


async def test_of_all_replicas_those_are_named_that_still_show_the_old_ca(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust, old = two()
    shown = {"127.0.0.2": old, "127.0.0.3": trust.authority, "127.0.0.4": two()[1]}
    async with contextlib.AsyncExitStack() as stack:
        port = 0
        for address, authority in shown.items():
            (tmp_path / address).mkdir()
            server = Shown(tmp_path / address)
            server.of(authority)
            await stack.enter_async_context(server.serving(address, port))
            port = server.port
        found = [*shown, "127.0.0.5", "127.0.0.2"]  # one is away, one is named twice

        async def look_up(host: str, at: int, **_: object) -> list[Any]:
            assert host == "replicas.example"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, at)) for each in found]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        assert await Replicas("replicas.example", port).behind(trust) == ("127.0.0.2",)


async def test_who_says_nothing_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    trust, _ = two()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await Replicas("127.0.0.1", silent.getsockname()[1]).behind(trust) == ()
    assert await Replicas("no-such-name.invalid", 1).behind(trust) == ()


async def overlapped(cluster: Cluster) -> None:
    """A new CA serves, and the time of the old one is over."""
    await (await cluster.keeper()).round()
    await (await cluster.keeper(Orders(authority=True))).round()
    keeper = await cluster.keeper()
    for minutes in (0, 2, 1):
        cluster.clock.pass_(minutes=minutes)
        await keeper.round()
    cluster.clock.pass_(hours=2)


async def test_an_old_ca_stays_for_replicas_that_still_show_it(cluster: Cluster) -> None:
    api = cluster.api
    await overlapped(cluster)
    bundle = the_bundle(api)
    behind: tuple[str, ...] = ("10.0.0.7",)
    asked: list[Trust] = []

    async def ask(trust: Trust) -> tuple[str, ...]:
        asked.append(trust)
        return behind

    client = (await cluster.keeper()).client
    keeper = Kept(Keeper(PLACES, cluster.rules, cluster.clock, behind=ask), client)
    writes = len([seen for seen in api.seen if seen.method == "PUT"])
    for _ in range(3):
        assert (await keeper.round()).behind == behind
        cluster.clock.pass_(days=1)
    assert the_bundle(api) == bundle
    assert len([seen for seen in api.seen if seen.method == "PUT"]) == writes, "it writes for it"
    assert [(each.authorities) for each in asked] == [bundle] * 3
    behind = ()
    assert (await keeper.round()).behind == ()
    assert the_bundle(api) == bundle[:1]
    await keeper.round()
    assert len(asked) == 4, "asked although there is no old CA"


async def test_a_process_keeps_an_old_ca_until_the_replica_has_followed(
    api: ApiServerStandIn, processes: Processes, tmp_path: Path
) -> None:
    server = Shown(tmp_path)
    server.of(two()[1])
    async with server.serving("127.0.0.1"):
        at = ("--overlap", "1s", "--replicas", f"127.0.0.1:{server.port}")
        replica = start(api, processes, tmp_path, *at)
        await eventually_async(replica.ready, timeout=60, what="readiness")

        def show() -> None:
            held = secret(api, TLS)
            server.pair(held["tls.crt"], held["tls.key"])

        show()
        [old] = the_bundle(api)
        kubeconfig = ("--kubeconfig", api.kubeconfig_path)
        renewing = processes.accelbind("certs", "renew", "--ca", "--settle", "1s", *kubeconfig)
        assert await asyncio.to_thread(renewing.wait) == 0
        name = "accelbind_certs_replicas_behind"

        async def is_behind() -> bool:
            return await replica.metric(name) == 1

        await eventually_async(is_behind, timeout=60, what="the replica is seen to be behind")
        assert the_bundle(api)[1:] == (old,)
        show()
        await eventually_async(lambda: len(the_bundle(api)) == 1, timeout=60, what="one CA")
        assert "old.crt" not in secret(api, CA)
        [said] = replica.events(
            "replicas of the webhook still show a certificate of an old CA, which stays in the"
            " bundle for them: look at their logs for 'new certificate not used'"
        )
        assert said["replicas"] == ["127.0.0.1"]
