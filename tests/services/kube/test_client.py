"""The client against a server of a few lines that answers as each test wants."""

import asyncio
import gc
import gzip
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.kube.access import Access, find_access, require_access
from services.kube.client import BadStatus, ClusterClient, TooLong, Unreadable
from services.process.errors import ClusterError
from simulator.apiserver.http_server import make_pair
from simulator.apiserver.standin import ApiServerStandIn

POD = "/api/v1/namespaces/ns/pods/p"


def answer(status: int, body: bytes, *, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


class Server:
    """Answers requests in turn from a list of bytes, and keeps their heads."""

    def __init__(self, *answers: bytes, close_after_each: bool = False) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.close_after_each = close_after_each
        self.writers: list[asyncio.StreamWriter] = []
        self.url, self.port = "", 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.requests.append(head)
                lengths = [h for h in head.lower().splitlines() if h.startswith("content-length:")]
                length = int(lengths[0].split(":")[1]) if lengths else 0
                self.bodies.append(await reader.readexactly(length))
                reply = self.answers.pop(0)
                writer.write(reply)
                await writer.drain()
                if self.close_after_each:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def run(
        self, tls: ssl.SSLContext | None = None, *, port: int = 0
    ) -> AsyncIterator["Server"]:
        server = await asyncio.start_server(self.connected, "127.0.0.1", port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        try:
            yield self
        finally:
            server.close()


@asynccontextmanager
async def talk(
    *answers: bytes, close_after_each: bool = False
) -> AsyncIterator[tuple[ClusterClient, Server]]:
    async with (
        Server(*answers, close_after_each=close_after_each).run() as server,
        ClusterClient(Access(server.url)) as client,
    ):
        yield client, server


async def test_a_pod_is_asked_for_by_its_path() -> None:
    async with talk(answer(200, b'{"kind":"Pod"}')) as (client, server):
        assert await client.get(POD) == b'{"kind":"Pod"}'
    assert server.requests[0].startswith(f"GET {POD} HTTP/1.1\r\n")
    assert "accept: application/json" in server.requests[0].lower()


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (answer(403, b'{"message":"pods is forbidden"}'), r"403 .*: pods is forbidden \(RBAC must"),
        (answer(500, b""), r"answers 500 to GET /api/v1/namespaces/ns/pods/p$"),
        (answer(503, b"not json\x00"), r"answers 503 .*: not json"),
        (b"rubbish\r\n\r\n", "closed the connection"),
    ],
)
async def test_an_answer_that_is_no_success_says_what_the_server_said(
    reply: bytes, text: str
) -> None:
    async with talk(reply, reply) as (client, _server):
        with pytest.raises(ClusterError, match=text):
            await client.get(POD)


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ("", 0),
        ("Retry-After: 7\r\n", 7),
        ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\n", 0),
        ("Retry-After: 999999999999\r\n", 0),
    ],
)
async def test_a_refusal_tells_its_status_and_how_long_to_wait(more: str, seconds: int) -> None:
    busy = answer(429, b"", more=more)
    async with talk(busy, busy) as (client, _server):
        with pytest.raises(BadStatus) as caught:
            await client.get(POD)
        assert (caught.value.status, caught.value.retry_after) == (429, seconds)
        with pytest.raises(BadStatus) as caught:
            async with client.lines("/api/v1/pods", {}, seconds=5):
                pass
    assert (caught.value.status, caught.value.retry_after) == (429, seconds)


async def test_on_a_connection_that_was_just_closed_only_a_get_is_sent_again() -> None:
    answers = b"", answer(200, b"{}"), b""
    async with talk(*answers, close_after_each=True) as (client, server):
        assert await client.get(POD) == b"{}"
        assert len(server.requests) == 2
        with pytest.raises(ClusterError, match="closed the connection during POST"):
            await client.request("POST", "/api/v1/x", body={"a": 1})
    assert len(server.requests) == 3


async def test_lines_end_at_newlines_only_however_they_are_cut() -> None:
    one, two = '{"a":"\x85 \u2028"}'.encode(), b'{"b":1}'
    chunks = [one[:5], one[5:] + b"\n" + two[:2], two[2:] + b"\nrest"]
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    async with (
        talk(reply) as (client, server),
        client.lines("/api/v1/pods", {"watch": 1}, seconds=5) as lines,
    ):
        assert [line async for line in lines] == [one, two, b"rest"]
    assert server.requests[0].startswith("GET /api/v1/pods?watch=1 ")


UNFINISHED = b"HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\nonly this"


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (b"", ClusterError, r"doesn't answer GET .* in time"),
        (UNFINISHED, ClusterError, r"doesn't answer GET .* in time"),
        (answer(200, b"x" * 1001), TooLong, "longer than 1000 bytes"),
    ],
)
async def test_answers_and_lines_without_end_are_given_up(
    monkeypatch: pytest.MonkeyPatch, reply: bytes, error: type[ClusterError], text: str
) -> None:
    seconds = 60 if error is TooLong else 0.1
    monkeypatch.setattr("services.kube.access._READ_SECONDS", seconds)
    monkeypatch.setattr("services.kube.client._MORE_SECONDS", 0)
    for limit in ("MAX_BODY", "MAX_OBJECT"):
        monkeypatch.setattr(f"services.kube.client.{limit}", 1000)
    async with talk(reply) as (client, _server):
        with pytest.raises(error, match=text):
            await client.get(POD)
    async with talk(reply) as (client, _server):
        with pytest.raises(error, match=text):
            async with client.lines("/api/v1/pods", {}, seconds=seconds) as lines:
                await anext(lines)


async def test_compressed_answers_are_not_accepted() -> None:
    """Compressed twice, some kilobytes could become gigabytes."""
    bomb = gzip.compress(gzip.compress(bytes(1000)))
    reply = answer(200, bomb, more="Content-Encoding: gzip, gzip\r\n")
    async with talk(reply) as (client, server):
        with pytest.raises(Unreadable, match="is gzip, gzip, which was not accepted"):
            await client.get(POD)
        assert "accept-encoding: identity" in server.requests[0].lower()
    async with talk(reply) as (client, _server):
        with pytest.raises(Unreadable, match="is gzip, gzip, which was not accepted"):
            async with client.lines("/api/v1/pods", {}, seconds=60) as lines:
                await anext(lines)


async def test_a_callers_own_time_out_is_not_the_servers() -> None:
    async with talk(answer(200, b"{}\n")) as (client, _server):
        with pytest.raises(TimeoutError):
            async with client.lines("/api/v1/pods", {}, seconds=5):
                raise TimeoutError


async def test_a_request_that_is_cancelled_while_it_connects_leaves_no_socket_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = list[str]()
    monkeypatch.setattr("sys.unraisablehook", lambda error: lost.append(str(error.exc_value)))
    async with ApiServerStandIn(tmp_path) as api:
        for number in range(60):
            async with ClusterClient(api.access) as client:
                request = asyncio.create_task(client.get(POD))
                for _ in range(number):  # each time a step later
                    await asyncio.sleep(0)
                request.cancel()
                await asyncio.wait([request])
            del client, request
            gc.collect()
    assert lost == []


# Ways to the API server: an address, and the service account of a pod


OK = answer(200, b"{}")


def account_of(folder: Path, authority: bytes, token: str = "first") -> Path:  # noqa: S107 - no secret
    """A service account's folder, as the kubelet mounts it."""
    (folder / "ca.crt").write_bytes(authority)
    (folder / "token").write_text(token)
    return folder


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
    async with Server(OK, close_after_each=True).run(old.context) as server:
        account = account_of(tmp_path, old.authority)
        client = ClusterClient(Access(server.url, account))
        assert await client.get(POD) == b"{}"
    async with Server(OK, close_after_each=True).run(new.context, port=server.port):
        with pytest.raises(ClusterError, match=r"can't be reached: .*certificate"):
            await client.get(POD)
        (account / "ca.crt").write_bytes(b"broken\n" + new.authority)
        assert await client.get(POD) == b"{}"
    async with Server(OK).run(old.context, port=server.port):
        with pytest.raises(ClusterError, match=r"can't be reached: .*certificate"):
            await client.get(POD)
    await client.aclose()
    with pytest.raises(RuntimeError, match="client has been closed"):
        await client.get(POD)


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
