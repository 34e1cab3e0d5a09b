"""Clients that send what has no end around a body, while others want their reviews."""

import asyncio
import http.client
from pathlib import Path

import pytest

from tests.support import eventually_async
from tests.webhook.asgi import Bench
from tests.webhook.reviews import body, patch_of
from tests.webhook.running import HEADERS, Webhook
from tests.webhook.test_server import connect, ended, head, serving
from webhook.limits import MAX_HEAD

pytestmark = pytest.mark.anyio


MEBIBYTE = 1024 * 1024
START = b"POST /mutate HTTP/1.1\r\nHost: x\r\n"
CHUNKED = START + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {
    "headers": (START, b"X-Header: " + b"a" * 1000 + b"\r\n"),
    "tiny headers": (START, b"a:b\r\n"),
    "empty headers": (START, b"a:\r\n"),
    "one header": (START + b"X: ", b"a" * 1000),
    "request line": (b"POST /mutate?", b"a" * 1000),
    "method": (b"", b"\r\n" * 500),
    "trailers": (CHUNKED + b"0\r\n", b"X-Trailer: " + b"a" * 1000 + b"\r\n"),
    "trailers after a body": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"a:b\r\n"),
    "chunk extension": (CHUNKED + b"2;", b"a" * 1000),
    "tiny chunks": (CHUNKED, b"1\r\n \r\n"),
}
each_flood = pytest.mark.parametrize("name", FLOODS)


def peak(webhook: Webhook) -> int:
    """The most memory the process ever had, in bytes."""
    status = Path(f"/proc/{webhook.process.pid}/status").read_text().splitlines()
    (kibibytes,) = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
    return kibibytes * 1024


def review(connection: http.client.HTTPSConnection, uid: str) -> bool:
    connection.request("POST", "/mutate", body(uid=uid), HEADERS)
    return bool(patch_of(connection.getresponse().read(), uid))


@each_flood
def test_a_head_without_end_is_refused_with_a_status(webhook: Webhook, name: str) -> None:
    begin, more = FLOODS[name]
    # A little more than is taken for sure, whatever of it comes at once.
    content = begin + more * (2 * MAX_HEAD // len(more))
    with webhook.raw() as secured:
        secured.sendall(content)
        answer = http.client.HTTPResponse(secured)
        answer.begin()
        text = answer.read().decode()
        assert answer.status == 431
        assert answer.getheader("Connection") == "close"
        assert '"kind":"Status"' in text
        assert f"at most {MAX_HEAD} bytes" in text
        assert secured.recv(1) == b""


def test_a_body_in_chunks_is_no_head(webhook: Webhook) -> None:
    whole = body() + b" " * 4 * MAX_HEAD
    pieces = [whole[at : at + 100] for at in range(0, len(whole), 100)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    with webhook.raw() as secured:
        secured.sendall(CHUNKED + chunks + b"0\r\n\r\n")
        answer = http.client.HTTPResponse(secured)
        answer.begin()
        assert answer.status == 200
        assert patch_of(answer.read())


def test_a_head_of_usual_size_is_counted_for_its_own_request_only(webhook: Webhook) -> None:
    connection = webhook.connect()
    for number in range(20):
        headers = HEADERS | {"X-Long": "a" * 8000}
        connection.request("POST", "/mutate", body(uid=str(number)), headers)
        assert patch_of(connection.getresponse().read(), str(number))
    connection.close()


async def test_what_comes_after_the_refusal_is_not_even_parsed(tmp_path: Path) -> None:
    async with serving(tmp_path, Bench().app) as server:
        reader, writer = await connect(server)
        await eventually_async(lambda: len(server._protocols) == 1)
        (protocol,) = server._protocols
        writer.write(START + b"X: " + b"a" * 10 * MAX_HEAD)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
        assert MAX_HEAD < protocol.overhead <= MAX_HEAD + 4 * 1024
        writer.transport.abort()
        assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_refusal_is_not_taken_for_the_answer_to_an_earlier_request(tmp_path: Path) -> None:
    async def hang(_scope: object, _receive: object, _send: object) -> None:
        await asyncio.Event().wait()

    async with serving(tmp_path, hang) as server:
        reader, writer = await connect(server)
        writer.write(head(2) + b"{}" + START + b"X: " + b"a" * 2 * MAX_HEAD)
        assert await ended(reader)
