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
import yaml

from services.kube.client import ClusterClient, load_config
from services.kube.tunnel import Proxy, proxy_of
from services.process.errors import ClusterError
from simulator.apiserver.tls import ServingPair, make_pair
from tests.client_certificates import ClientAuthority

pytestmark = pytest.mark.anyio

HTTP = "http://proxy:3128"
POD = "/api/v1/namespaces/ns/pods/p"


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@pytest.fixture(scope="module")
def pair() -> ServingPair:
    return make_pair(["api.example.com"])


class Ends:
    """A TLS server that answers what it knows of who asks, and a proxy to it.

    Attributes:
        server: its URL.
        proxy: the proxy's.
        asked: heads of what the proxy was asked.
        reply: what it answers; a tunnel if empty.
        refused: who isn't let in any more.
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


def client_of(
    folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None
) -> ClusterClient:
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": cluster}],
                "users": [{"name": "u", "user": user or {"token": "t"}}],
            }
        )
    )
    access = load_config(path, environment={})
    assert access is not None
    return ClusterClient(access)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_proxy_is_asked_for_a_tunnel_and_sees_nothing_of_what_goes_through(
    tmp_path: Path, pair: ServingPair, run: Callable[..., None]
) -> None:
    async def scenario() -> None:
        async with Ends().run(pair.context()) as ends:
            ends.body = b"x" * 3_000_000  # more than what any buffer on the way holds
            cluster = {
                "server": "https://api.example.com",
                "certificate-authority-data": encoded(pair.authority),
                "proxy-url": ends.proxy,
            }
            async with client_of(tmp_path, cluster) as client:
                assert await client.get(POD) == ends.body
                assert await client.get(POD) == ends.body
        (head,) = ends.asked
        assert head.startswith("CONNECT api.example.com:443 HTTP/1.1\r\n")
        login = base64.b64encode(b"u@x:p").decode()
        assert f"\r\nProxy-Authorization: Basic {login}\r\n" in head
        assert "Bearer" not in head

    run(scenario())


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
            'answers "HTTP/1.1 403 Forbidden',
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "more than that there is a tunnel"),
        (b"SSH-2.0\r\n\r\n", 'answers "SSH-2.0" to CONNECT a:443'),
        (b"HTTP/1.1 200 OK\r\n", "has no end"),
        (b"x" * 100_000, "has no end"),
    ],
)
async def test_a_proxy_that_gives_no_tunnel_is_named_with_what_it_says(
    tmp_path: Path, reply: bytes, message: str
) -> None:
    async with Ends().run(None) as ends:
        ends.reply = reply
        cluster = {"server": "https://a", "proxy-url": ends.proxy}
        async with client_of(tmp_path, cluster) as client:
            with pytest.raises(ClusterError, match=f"https://a can't be reached: .*{message}"):
                await client.get(POD)


async def test_a_proxy_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    async with Ends().run(None) as ends:
        proxy = ends.proxy
    async with client_of(tmp_path, {"server": "https://a", "proxy-url": proxy}) as client:
        where = proxy.rpartition("@")[2]
        with pytest.raises(ClusterError, match=f"the proxy {where} can't be reached") as caught:
            await client.get(POD)
    assert "u%40x" not in str(caught.value)


async def test_a_proxy_whose_name_nobody_knows_is_named(tmp_path: Path) -> None:
    cluster = {"server": "https://a", "proxy-url": "http://proxy.invalid:3128"}
    async with client_of(tmp_path, cluster) as client:
        with pytest.raises(ClusterError, match=r"the proxy proxy.invalid:3128 can't be reached: "):
            await client.get(POD)


async def test_the_environment_names_a_proxy_too(
    tmp_path: Path, pair: ServingPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    async with Ends().run(pair.context()) as ends:
        monkeypatch.setenv("HTTPS_PROXY", ends.proxy)
        cluster = {
            "server": "https://api.example.com:6443",
            "certificate-authority-data": encoded(pair.authority),
        }
        async with client_of(tmp_path, cluster) as client:
            assert await client.get(POD) == b"{}"
    assert ends.asked[0].startswith("CONNECT api.example.com:6443 ")


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


async def test_a_servers_own_certificate_may_be_what_is_trusted(
    tmp_path: Path, pair: ServingPair
) -> None:
    cluster = {
        "tls-server-name": "api.example.com",
        "certificate-authority-data": encoded("# Größe\n".encode() + pair.certificate),
    }
    async with (
        Ends().run(pair.context()) as ends,
        client_of(tmp_path, cluster | {"server": ends.server}) as client,
    ):
        assert await client.get(POD) == b"{}"
        transport: Any = client._http._transport
        # Python 3.13 would refuse CAs that are older than some rules, which no client in Go does.
        assert not transport.context.verify_flags & ssl.VERIFY_X509_STRICT


async def test_a_plugin_may_give_a_certificate_and_another_one_later(
    tmp_path: Path, pair: ServingPair
) -> None:
    authority = ClientAuthority(tmp_path)
    context = pair.context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.path)
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    plugin.chmod(0o755)
    cluster = {
        "certificate-authority-data": encoded(pair.authority),
        "tls-server-name": "api.example.com",
    }
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}}
    async with (
        Ends().run(context) as ends,
        client_of(tmp_path, cluster | {"server": ends.server}, user) as client,
    ):
        (tmp_path / "answer").write_text(credential(authority, "jane"))
        assert await client.get(POD) == b"jane"
        (tmp_path / "answer").write_text(credential(authority, "john"))
        assert await client.get(POD) == b"jane"
        ends.refused = b"jane"
        assert await client.get(POD) == b"john"


def credential(authority: ClientAuthority, name: str) -> str:
    certificate, key = (path.read_text() for path in authority.issue(name))
    status = {"clientCertificateData": certificate, "clientKeyData": key}
    return yaml.safe_dump({"status": status}, default_flow_style=True, default_style='"', width=1e9)


@pytest.mark.parametrize(
    ("server", "named", "environment", "proxy"),
    [
        ("https://a", "", {}, None),
        ("https://a", HTTP, {}, Proxy("proxy", 3128)),
        ("https://a", HTTP, {"HTTPS_PROXY": "http://other", "NO_PROXY": "*"}, Proxy("proxy", 3128)),
        ("https://a", "", {"HTTPS_PROXY": "proxy:3128"}, Proxy("proxy", 3128)),
        ("https://a", "", {"https_proxy": "http://proxy"}, Proxy("proxy", 80)),
        ("https://a", "", {"HTTP_PROXY": HTTP}, None),
        ("http://a", "", {"HTTP_PROXY": HTTP}, Proxy("proxy", 3128)),
        ("https://localhost:6443", "", {"HTTPS_PROXY": HTTP}, None),
        ("https://127.0.0.1:6443", "", {"HTTPS_PROXY": HTTP}, None),
        ("https://[::1]:6443", "", {"HTTPS_PROXY": HTTP}, None),
    ],
)
def test_a_kubeconfig_names_the_proxy_or_else_the_environment(
    server: str, named: str, environment: dict[str, str], proxy: Proxy | None
) -> None:
    assert proxy_of(server, named, environment) == proxy


@pytest.mark.parametrize(
    ("server", "no_proxy", "spared"),
    [
        ("https://10.96.0.1", "10.0.0.0/8", True),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://10.96.0.1", "192.168.0.0/16, 10.96.0.0/12", True),
        ("https://10.96.0.1", "10.96.0.1:443", True),
        ("https://10.96.0.1:6443", "10.96.0.1:443", False),
        ("https://11.96.0.1", "10.0.0.0/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]", "10.0.0.0/8,.svc", False),
        ("https://api.Example.com", "example.COM", True),
        ("https://api.example.com", ".example.com", True),
        ("https://api.example.com", "*.example.com", True),
        ("https://api.example.com:6443", "example.com:6443", True),
        ("https://example.com", ".example.com", False),
        ("https://badexample.com", "example.com", False),
        ("https://api.example.com", "*", True),
        ("https://api.example.com", ",,", False),
    ],
)
def test_what_is_spared_the_proxy_is_what_go_spares(
    server: str, no_proxy: str, spared: bool
) -> None:
    found = proxy_of(server, "", {"HTTPS_PROXY": HTTP, "no_proxy": no_proxy})
    assert (found is None) == spared
