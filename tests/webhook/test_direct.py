"""The short way of a review through the server, and what is left to the long one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support import eventually_async
from tests.webhook.asgi import Bench
from tests.webhook.reviews import body, patch_of
from tests.webhook.test_server import connect, serving
from webhook import server as servers
from webhook.admission import Receive, Scope, Send
from webhook.server import AdmissionServer

LONG = b"by the application"


class Application:
    """An application that tells what came its way.

    Attributes:
        asked: The paths.
        go: Until it is set, nothing is answered.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        self.asked.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        await self.go.wait()
        headers = [(b"content-length", b"%d" % len(LONG))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": LONG})


class Talk:
    """A connection to a server with both ways."""

    def __init__(
        self,
        bench: Bench,
        app: Application,
        server: AdmissionServer,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.bench, self.app, self.server = bench, app, server
        self.reader, self.writer = streams

    async def answer(self) -> tuple[bytes, bytes]:
        """Head and body of the next answer."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head, await asyncio.wait_for(self.reader.readexactly(length), 60)

    async def ended(self) -> bool:
        """Whether the server closes the connection now."""
        return await asyncio.wait_for(self.reader.read(), 60) == b""


@contextlib.asynccontextmanager
async def talking(folder: Path, **options: Any) -> AsyncIterator[Talk]:
    bench, app = Bench(**options), Application()
    async with serving(folder, app, gate=bench.gate) as server:
        streams = await connect(server)
        await eventually_async(lambda: len(server._connections) == 1)
        yield Talk(bench, app, server, streams)
        app.go.set()
        streams[1].transport.abort()


def request(content: bytes, *lines: str, path: str = "/mutate", version: str = "1.1") -> bytes:
    head = (f"POST {path} HTTP/{version}", "Host: x", *lines)
    return "\r\n".join((*head, "", "")).encode() + content


def review(uid: str = "1", path: str = "/mutate", kind: str = "application/json") -> bytes:
    content = body(uid=uid)
    length = f"Content-Length: {len(content)}"
    return request(content, length, f"Content-Type: {kind}", path=path)


@pytest.mark.parametrize("path", ["/mutate", "/pods", "/mutate?timeout=10s"])
def test_reviews_are_answered_without_the_application(tmp_path: Path, path: str) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            for uid in ("a", "b", "c"):
                talk.writer.write(review(uid, path))
                head, content = await talk.answer()
                assert head == (
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    b"content-length: %d\r\n\r\n" % len(content)
                )
                assert patch_of(content, uid)
            assert talk.app.asked == []
            assert talk.bench.figures.requests == {("mutate", "patched", ""): 3}

    asyncio.run(scenario())


def test_a_body_may_come_byte_by_byte(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            whole = review("drip")
            for at in range(0, len(whole), 7):
                talk.writer.write(whole[at : at + 7])
                await talk.writer.drain()
                await asyncio.sleep(0)  # the server reads
            assert patch_of((await talk.answer())[1], "drip")
            assert talk.app.asked == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "odd",
    [
        request(b"0\r\n\r\n", "Transfer-Encoding: chunked", "Content-Type: application/json"),
        review(kind="application/json; charset=utf-8"),
        request(b"{}", "Content-Length: 2"),
        request(b"{}", "Content-Length: 2", "Content-Type: application/json", path="/readyz"),
        request(b"", "Content-Length: 100001", "Content-Type: application/json"),
        review().replace(b"Host: x", b"Host: x\r\nContent-Encoding: identity"),
        review().replace(b"POST", b"PUT"),
    ],
)
def test_what_is_not_plainly_a_review_is_left_to_the_application(
    tmp_path: Path, odd: bytes
) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            talk.writer.write(odd + b" " * 100_001 if b"100001" in odd else odd)
            assert (await talk.answer())[1] == LONG
            assert len(talk.app.asked) == 1
            talk.writer.write(review("after"))
            assert patch_of((await talk.answer())[1], "after")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "last",
    [
        review().replace(b"Host: x", b"Host: x\r\nConnection: close"),
        review().replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_the_last_request_of_a_connection_is_left_to_the_application(
    tmp_path: Path, last: bytes
) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            talk.writer.write(last)
            head, content = await talk.answer()
            assert (b"connection: close" in head, content) == (True, LONG)
            assert await talk.ended()

    asyncio.run(scenario())


def test_a_client_that_waits_for_100_gets_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            head, _, content = (
                review().replace(b"Host: x", b"Expect: 100-continue").partition(b"\r\n\r\n")
            )
            talk.writer.write(head + b"\r\n\r\n")
            assert await talk.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            talk.writer.write(content)
            assert (await talk.answer())[1] == LONG

    asyncio.run(scenario())


def test_answers_keep_the_order_of_requests(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            talk.app.go.clear()
            slow = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
            talk.writer.write(review("first") + slow + review("third"))
            assert patch_of((await talk.answer())[1], "first")
            await eventually_async(lambda: talk.app.asked == ["/slow"])
            talk.app.go.set()
            assert [(await talk.answer())[1] for _ in range(2)] == [LONG, LONG]
            assert talk.app.asked == ["/slow", "/mutate"]

    asyncio.run(scenario())


def test_a_client_that_does_not_read_its_answers_gets_the_next_when_it_does(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            (connection,) = talk.server._connections
            connection.pause_writing()  # as the transport does when its buffer is full
            talk.writer.write(review())
            await eventually_async(lambda: talk.app.asked == ["/mutate"])
            assert connection.answering
            connection.resume_writing()
            assert (await talk.answer())[1] == LONG
            talk.writer.write(review("after"))
            assert patch_of((await talk.answer())[1], "after")

    asyncio.run(scenario())


def test_what_is_no_review_is_a_400_and_the_connection_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            talk.writer.write(request(b"{", "Content-Length: 1", "Content-Type: application/json"))
            assert (await talk.answer())[0].startswith(b"HTTP/1.1 400 Bad Request\r\n")
            talk.writer.write(request(b"", "Content-Length: 0", "Content-Type: application/json"))
            assert (await talk.answer())[0].startswith(b"HTTP/1.1 400 Bad Request\r\n")
            talk.writer.write(review("after"))
            assert patch_of((await talk.answer())[1], "after")
            assert talk.app.asked == []

    asyncio.run(scenario())


def test_a_mistake_of_ours_is_a_500_that_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            monkeypatch.setattr(talk.bench.gate, "_mappings", None)
            talk.writer.write(review())
            head, content = await talk.answer()
            assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
            assert (b"connection: close" in head, b"see its log" in content) == (True, True)
            assert await talk.ended()

    with capture_logs() as logs:
        asyncio.run(scenario())
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert line["event"] == "a request was not answered after a mistake of ours"


def test_a_connection_is_kept_for_the_next_review_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            (connection,) = talk.server._connections
            for uid in ("1", "2"):
                talk.writer.write(review(uid))
                assert patch_of((await talk.answer())[1], uid)
                assert connection.kept_since is not None
            talk.writer.write(review("3")[:20])
            await eventually_async(lambda: connection.kept_since is None)
            monkeypatch.setattr(servers, "KEEP_ALIVE", 0.05)
            talk.writer.write(review("3")[20:])
            assert patch_of((await talk.answer())[1], "3")
            assert await talk.ended()

    asyncio.run(scenario())


def test_while_draining_the_connection_is_closed_after_its_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            talk.bench.gate.draining = True
            talk.writer.write(review("1") + review("2"))
            head, content = await talk.answer()
            assert head.endswith(b"\r\nconnection: close\r\n\r\n")
            assert patch_of(content, "1")
            assert await talk.ended()

    asyncio.run(scenario())


def test_at_the_end_a_review_that_has_begun_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(tmp_path) as talk:
            whole = review("begun")
            talk.writer.write(whole[:-10])
            (connection,) = talk.server._connections
            await eventually_async(lambda: connection.answering)
            talk.server.should_exit = True
            await eventually_async(lambda: connection._last)
            talk.writer.write(whole[-10:])
            head, content = await talk.answer()
            assert (b"connection: close" in head, patch_of(content, "begun") != []) == (True, True)
            assert await talk.ended()

    asyncio.run(scenario())
