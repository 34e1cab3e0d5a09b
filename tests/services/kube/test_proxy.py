"""The way to an API server: which proxy, through it, and who is at the other end."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from services.kube.client import BadStatus, ClusterClient
from services.kube.connection import ApiConnection, connector
from services.process.errors import ClusterError
from simulator.apiserver.http_server import ServingPair, make_pair
from tests.client_certificates import ClientAuthority
from tests.services.kube.kubeconfigs import write_config

pytestmark = pytest.mark.anyio

POD = "/api/v1/namespaces/ns/pods/p"


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@pytest.fixture(scope="module")
def pair() -> ServingPair:
    return make_pair(["api.example.com"])


class Ends:
    """A TLS server that answers the name in the client's certificate, and a proxy to it.

    `asked` are the heads that the proxy got; `reply` is its answer, if it gives no tunnel. The
    server refuses the client `refused`.
    """

    def __init__(self) -> None:
        self.server = self.proxy = ""
        self.asked: list[str] = []
        self.reply = b""
        self.refused = b""
        self.body = b"{}"
        self._port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                shown = writer.get_extra_info("peercert") or {}
                names = [
                    value for attributes in shown.get("subject", ()) for _, value in attributes
                ]
                body = names[0].encode() if names else self.body
                status = 401 if body == self.refused else 200
                head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self.reply:
            writer.write(self.reply)
            writer.close()
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
        await asyncio.gather(copied(reader, outer), copied(inner, writer))

    @asynccontextmanager
    async def run(self, context: ssl.SSLContext | None) -> AsyncIterator["Ends"]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0, ssl=context)
        proxy = await asyncio.start_server(self.relay, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self.server = f"http{'s' if context else ''}://127.0.0.1:{self._port}"
        self.proxy = f"http://u%40x:p@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            proxy.close()


async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


def client_of(folder: Path, cluster: dict[str, Any]) -> ClusterClient:
    return connector(write_config(folder, cluster))()


@pytest.mark.parametrize(
    ("run", "source"), [(asyncio.run, "kubeconfig"), (uvloop.run, "environment")]
)
def test_a_proxy_is_asked_for_a_tunnel_and_sees_nothing_of_what_goes_through(
    tmp_path: Path,
    pair: ServingPair,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., None],
    source: str,
) -> None:
    async def scenario() -> None:
        async with Ends().run(pair.context()) as ends:
            ends.body = b"x" * 3_000_000  # more than what any buffer on the way holds
            cluster = {
                "server": "https://api.example.com",
                "certificate-authority-data": encoded(pair.authority),
            }
            if source == "kubeconfig":
                cluster["proxy-url"] = ends.proxy
            else:
                monkeypatch.setenv("HTTPS_PROXY", ends.proxy)
                monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
            async with client_of(tmp_path, cluster) as client:
                assert await client.get(POD) == ends.body
                assert await client.get(POD) == ends.body
        (head,) = ends.asked
        assert head.startswith("CONNECT api.example.com:443 HTTP/1.1\r\n")
        login = base64.b64encode(b"u@x:p").decode()
        assert f"\r\nProxy-Authorization: Basic {login}\r\n" in head
        assert "Bearer" not in head

    run(scenario())


async def test_a_proxy_that_gives_no_tunnel_is_an_error(tmp_path: Path) -> None:
    async with Ends().run(None) as ends:
        ends.reply = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
        cluster = {"server": "https://a", "proxy-url": ends.proxy}
        async with client_of(tmp_path, cluster) as client:
            with pytest.raises(ClusterError, match=r"https://a .*answers 403 Forbidden"):
                await client.get(POD)


async def test_a_proxy_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    async with Ends().run(None) as ends:
        proxy = ends.proxy
    async with client_of(tmp_path, {"server": "https://a", "proxy-url": proxy}) as client:
        where = proxy.rpartition("@")[2]
        refused = f"can't be reached through the proxy {where}: .*connection refused"
        with pytest.raises(ClusterError, match=refused) as caught:
            await client.get(POD)
    assert "u%40x" not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "answered"),
    [
        ({}, False),
        ({"tls-server-name": "api.example.com"}, True),
        ({"tls-server-name": "other.example.com"}, False),
        ({"insecure-skip-tls-verify": True}, True),
    ],
)
async def test_a_server_has_to_be_who_is_meant(
    tmp_path: Path, pair: ServingPair, cluster: dict[str, Any], answered: bool
) -> None:
    authority = {"certificate-authority-data": encoded(pair.authority)}
    trusted = {} if "insecure-skip-tls-verify" in cluster else authority
    async with (
        Ends().run(pair.context()) as ends,
        client_of(tmp_path, {"server": ends.server, **trusted, **cluster}) as client,
    ):
        if answered:
            assert await client.get(POD) == b"{}"
        else:
            with pytest.raises(ClusterError, match=r"can't be reached: .*certificate"):
                await client.get(POD)


async def test_a_certificate_of_a_client_is_shown_and_read_again_when_it_is_refused(
    tmp_path: Path, pair: ServingPair
) -> None:
    authority = ClientAuthority(tmp_path)
    context = pair.context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.path)
    cluster = {
        "certificate-authority-data": encoded(pair.authority),
        "tls-server-name": "api.example.com",
    }

    def user(name: str) -> dict[str, Any]:
        certificate, key = authority.issue(name)
        return {"client-certificate": str(certificate), "client-key": str(key)}

    async with Ends().run(context) as ends:
        cluster["server"] = ends.server
        connection = ApiConnection(connector(write_config(tmp_path, cluster, user("jane"))))
        async with connection.client() as client:
            assert await client.get(POD) == b"jane"
        write_config(tmp_path, cluster, user("john"))
        ends.refused = b"jane"
        with pytest.raises(BadStatus):
            async with connection.client() as client:
                await client.get(POD)
        async with connection.client() as client:
            assert await client.get(POD) == b"john"
        await connection.aclose()


@pytest.mark.parametrize(
    ("host", "no_proxy", "spared"),
    [
        ("localhost", "", True),
        ("224.0.0.1", "10.0.0.0/8", False),
    ],
)
async def test_no_proxy_names_what_is_reached_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, no_proxy: str, spared: bool
) -> None:
    """Nobody listens on port 9 of this machine, and multicast can't be connected to."""
    async with Ends().run(None) as ends:
        ends.reply = b"HTTP/1.1 403 Forbidden\r\n\r\n"
        monkeypatch.setenv("HTTPS_PROXY", ends.proxy)
        monkeypatch.setenv("NO_PROXY", no_proxy)
        async with client_of(tmp_path, {"server": f"https://{host}:9"}) as client:
            with pytest.raises(ClusterError, match="can't be reached"):
                await client.get(POD)
        assert (not ends.asked) == spared


def test_a_proxy_of_the_environment_that_can_not_be_used_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy:1080")
    with pytest.raises(
        ClusterError, match="HTTPS_PROXY or ALL_PROXY is not an http:// or https:// URL"
    ):
        client_of(tmp_path, {"server": "https://a"})
