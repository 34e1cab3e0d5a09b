"""Ways to the API server: an address without credentials, and the service account of a pod."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.kube.access import Access, find_access, require_access
from services.kube.client import BadStatus, ClusterClient
from services.process.errors import ClusterError
from simulator.apiserver.http_server import make_pair
from simulator.apiserver.standin import ApiServerStandIn
from tests.services.kube.test_client import POD, Server, answer

pytestmark = pytest.mark.anyio

OK = answer(200, b"{}")


def account_of(folder: Path, authority: bytes, token: str = "first") -> Path:  # noqa: S107 - no secret
    """A service account's folder, as the kubelet mounts it."""
    (folder / "ca.crt").write_bytes(authority)
    (folder / "token").write_text(token)
    return folder


def authorizations(server: Server) -> list[str]:
    return [request.partition("uthorization: ")[2].split("\r\n")[0] for request in server.requests]


@asynccontextmanager
async def serving(context: ssl.SSLContext, *answers: bytes, port: int = 0) -> AsyncIterator[Server]:
    server = Server(*answers, close_after_each=True)
    async with server.run(context, port=port):
        yield server


def test_an_address_counts_before_a_service_account_and_without_both_there_is_none(
    tmp_path: Path,
) -> None:
    account = account_of(tmp_path, b"")
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    six = {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert find_access("unix:/s", environment=pod, account=account) == Access("unix:/s")
    assert find_access(environment=pod, account=account) == Access("https://10.0.0.1:6443", account)
    assert find_access(environment=six, account=account) == Access("https://[fd00::1]:443", account)
    assert find_access(environment={}, account=account) is None
    assert find_access(environment=pod, account=tmp_path / "none") is None


def test_without_an_address_and_a_pod_the_error_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match="set --api-server unix:PATH"):
        require_access()


async def test_requests_on_a_socket_are_for_localhost_and_carry_no_token(short_dir: Path) -> None:
    server = Server(OK)
    path = short_dir / "s"
    async with (
        await asyncio.start_unix_server(server.connected, path),
        ClusterClient(Access(f"unix:{path}")) as client,
    ):
        assert await client.get(POD) == b"{}"
    head = server.requests[0].lower()
    assert "\r\nhost: localhost\r\n" in head
    assert "\r\nuser-agent: accelbind\r\n" in head
    assert "authorization" not in head


async def test_a_socket_that_nobody_serves_is_named(short_dir: Path) -> None:
    async with ClusterClient(Access(f"unix:{short_dir}/none")) as client:
        with pytest.raises(ClusterError, match=f"unix:{short_dir}/none can't be reached: No such"):
            await client.get(POD)


async def test_a_service_account_is_used_as_a_pod_does(tmp_path: Path) -> None:
    async with ApiServerStandIn(tmp_path) as api:
        account = account_of(tmp_path, api.authority, api.token)
        async with ClusterClient(Access(api.url, account)) as client:
            assert b"gitVersion" in (await client.get("/version") or b"")
            (account / "token").write_text("wrong")
            with pytest.raises(BadStatus, match=r"answers 401 .*token") as refused:
                await client.get(POD)
    assert refused.value.status == 401


async def test_the_token_is_read_for_each_request(tmp_path: Path) -> None:
    pair = make_pair(["127.0.0.1"])
    async with serving(pair.context, OK, OK) as server:
        account = account_of(tmp_path, pair.authority)
        async with ClusterClient(Access(server.url, account)) as client:
            await client.get(POD)
            (account / "token").write_text("second\n")
            await client.get(POD)
    assert authorizations(server) == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"one\r\nX: y"])
async def test_a_token_that_can_not_be_sent_is_an_error(tmp_path: Path, content: bytes) -> None:
    account = account_of(tmp_path, make_pair(["a"]).authority)
    async with ClusterClient(Access("https://a", account)) as client:
        (account / "token").write_bytes(content)
        with pytest.raises(ClusterError, match=f"{account}/token holds no token"):
            await client.get(POD)
        (account / "token").unlink()
        with pytest.raises(ClusterError, match=f"{account}/token can't be read: No such file"):
            await client.get(POD)


async def test_a_replaced_ca_counts_at_once_and_the_old_one_no_longer(tmp_path: Path) -> None:
    old, new = make_pair(["127.0.0.1"]), make_pair(["127.0.0.1"])
    async with serving(old.context, OK) as server:
        account = account_of(tmp_path, old.authority)
        client = ClusterClient(Access(server.url, account))
        assert await client.get(POD) == b"{}"
    async with serving(new.context, OK, port=server.port):
        with pytest.raises(ClusterError, match=r"can't be reached: .*certificate"):
            await client.get(POD)
        (account / "ca.crt").write_bytes(b"broken\n" + new.authority)
        assert await client.get(POD) == b"{}"
    async with serving(old.context, OK, port=server.port):
        with pytest.raises(ClusterError, match=r"can't be reached: .*certificate"):
            await client.get(POD)
    await client.aclose()
    assert client.is_closed


async def test_a_watch_goes_on_while_the_ca_is_replaced(tmp_path: Path) -> None:
    pair = make_pair(["127.0.0.1"])
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"
    server = Server(begun, b"3\r\n{}\n\r\n0\r\n\r\n")
    async with server.run(pair.context):
        account = account_of(tmp_path, pair.authority)
        async with (
            ClusterClient(Access(server.url, account)) as client,
            client.lines("/api/v1/pods", {"watch": 1}, seconds=60) as lines,
        ):
            assert await anext(lines) == b"{}"
            (account / "ca.crt").write_bytes(make_pair(["other"]).authority)
            with pytest.raises(ClusterError, match="certificate"):
                await client.get(POD)
            server.writers[0].write(b"3\r\n[]\n\r\n0\r\n\r\n")
            assert [line async for line in lines] == [b"[]"]


@pytest.mark.parametrize("authority", [b"", b"-----BEGIN CERTIFICATE-----\nx\n"])
def test_a_ca_file_without_certificates_is_an_error(tmp_path: Path, authority: bytes) -> None:
    account = account_of(tmp_path, authority)
    with pytest.raises(ClusterError, match=f"{account}/ca.crt holds no certificates"):
        ClusterClient(Access("https://a", account))


async def test_a_pod_reaches_the_api_server_through_the_proxy_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = account_of(tmp_path, make_pair(["a"]).authority)
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1", 0, family=socket.AF_INET)
    port = proxy.sockets[0].getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    async with proxy, ClusterClient(Access("https://api.example.com", account)) as client:
        with pytest.raises(ClusterError, match="can't be reached: 403 Forbidden"):
            await client.get(POD)
    assert asked == [b"CONNECT api.example.com:443 HTTP/1.1\r\n"]
