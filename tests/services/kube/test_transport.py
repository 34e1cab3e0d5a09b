"""HTTP/1.1 as servers speak it, well and badly, over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from services.kube import transport as module
from services.kube.transport import MAX_HEAD, LeanTransport

pytestmark = pytest.mark.anyio


class Server:
    """Gives each request the next answer, and counts connections."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.heads: list[bytes] = []
        self.url = ""

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0)
                writer.write(answer)
                await writer.drain()
                if b"Content-Length" not in answer and b"chunked" not in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def talk(*answers: bytes) -> AsyncIterator[tuple[httpx2.AsyncClient, Server]]:
    made = Server(*answers)
    listening = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    transport = LeanTransport(ssl.create_default_context())
    try:
        async with httpx2.AsyncClient(base_url=url, transport=transport, timeout=60) as client:
            yield client, made
    finally:
        listening.close()


def answer(body: bytes, head: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        (answer(b"all of it"), 200, b"all of it"),
        (answer(b""), 200, b""),
        (CHUNKED + b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: r\r\n\r\n", 200, b"abc0123456789"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"then"), 200, b"then"),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, b""),
        (b"HTTP/1.0 404\nContent-Length: 2\n\nno", 404, b"no"),
    ],
)
async def test_answers_are_read_however_they_are_framed(
    raw: bytes, status: int, body: bytes
) -> None:
    async with talk(raw) as (client, _):
        got = await client.get("/x?a=b")
        assert (got.status_code, got.content) == (status, body)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: " + b"a" * (2 * MAX_HEAD) + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 4000 + b"\r\n",
        CHUNKED + b"zz\r\nabc\r\n",
        pytest.param(
            CHUNKED + b"5\r\nabc", marks=pytest.mark.soak, id="cut short"
        ),  # 60 s of silence
    ],
)
async def test_what_is_no_answer_is_an_error_and_never_a_crash(raw: bytes) -> None:
    async with talk(raw, b"") as (client, _):
        with pytest.raises(httpx2.TransportError):
            await client.get("/")


async def test_a_connection_is_kept_while_answers_have_an_end() -> None:
    answers = [answer(b"1"), CHUNKED + b"1\r\n2\r\n0\r\n\r\n", answer(b"3")]
    async with talk(*answers, answer(b"4", "Connection: close\r\n"), answer(b"5")) as (
        client,
        made,
    ):
        assert [(await client.get("/")).text for _ in range(4)] == list("1234")
        assert made.connections == 1
        assert (await client.get("/")).text == "5"
        assert made.connections == 2


async def test_a_connection_of_http_1_0_is_kept_only_where_that_is_said() -> None:
    old = [
        answer(b"", head).replace(b"HTTP/1.1", b"HTTP/1.0")
        for head in ("Connection: Keep-Alive\r\n", "")
    ]
    async with talk(*old, answer(b"")) as (client, made):
        for connections in (1, 1, 2):
            await client.get("/")
            assert made.connections == connections


async def test_a_connection_that_was_silent_for_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with talk(answer(b"1"), answer(b"2")) as (client, made):
        assert (await client.get("/")).text == "1"
        monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
        assert (await client.get("/")).text == "2"
        assert made.connections == 2


async def test_an_answer_that_is_not_read_to_its_end_costs_its_connection() -> None:
    async with talk(answer(b"x" * 1_000_000), answer(b"2")) as (client, made):
        async with client.stream("GET", "/"):
            pass
        assert (await client.get("/")).text == "2"
        assert made.connections == 2


async def test_a_body_is_sent_with_its_length() -> None:
    async with talk(answer(b"")) as (client, made):
        await client.post("/p%20q", content=b"body")
    assert made.heads[0].startswith(b"POST /p%20q HTTP/1.1\r\n")
    assert b"Content-Length: 4\r\n" in made.heads[0]
