"""HTTP/1.1 for one API server over asyncio's own streams, in place of httpx's usual transport.

The usual one brings two libraries for protocols and one for event loops with it, some 5 MiB that a
process on every node would pay for. What is needed here is little: requests with a body that is
there as a whole, answers with a length, in chunks or until the end, connections that are kept. It
is httpx's interface, so that credentials, URLs and errors stay where they are.

An answer is hostile until read: heads are bounded here, bodies by whoever reads them, and every
wait has the time-out that the request came with.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Final, TypeVar

import httpx2

from services.kube.tunnel import Proxy, dig

T = TypeVar("T")

MAX_HEAD: Final = 64 * 1024
"""Bytes of a status line with all headers, and of one line in between chunks."""

MAX_IDLE: Final = 4
"""Connections that are kept for the next request."""
IDLE_SECONDS: Final = 60.0
"""How long they are kept: what stands in between forgets a silent connection without a word, some
after a few minutes, and the request after that would wait in vain."""

_PIECE: Final = 64 * 1024
_BODILESS: Final = frozenset({204, 304})


class _Connection:
    """A connection to the server.

    Attributes:
        reader: What comes.
        context: How TLS is spoken on it.
        idle_since: When it was used last, by the monotonic clock.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext | None,
    ) -> None:
        self.reader = reader
        self.context = context
        self.idle_since = time.monotonic()
        self._writer = writer

    @property
    def fit(self) -> bool:
        """Whether it may be used again, as far as can be told."""
        young = time.monotonic() - self.idle_since < IDLE_SECONDS
        return young and not self.reader.at_eof() and not self._writer.is_closing()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def abort(self) -> None:
        self._writer.transport.abort()


class LeanTransport(httpx2.AsyncBaseTransport):
    """Sends requests to one server.

    Args:
        context: How to speak TLS, for `https` URLs.
        server_name: The name that the server's certificate must have; that of the URL if empty.
        proxy: Through which the server is reached; None for straight.

    Attributes:
        context: As above; another one counts for connections that are opened from then on.
    """

    def __init__(
        self, context: ssl.SSLContext | None, *, server_name: str = "", proxy: Proxy | None = None
    ) -> None:
        self.context = context
        self._server_name = server_name
        self._proxy = proxy
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request; its answer's body is read by who asked.

        Raises:
            httpx2.TransportError: It can't be sent or answered.
        """
        limits: dict[str, float | None] = request.extensions.get("timeout", {})
        connection = await self._connection(request.url, limits.get("connect"))
        try:
            await _within(limits.get("write"), connection.send(await _encoded(request)), _WRITING)
            status, headers = await _head(connection.reader, limits.get("read"))
        except BaseException:
            connection.abort()
            raise
        body = _Body(self, connection, status, headers, limits.get("read"))
        return httpx2.Response(status, headers=headers, stream=body)

    async def aclose(self) -> None:
        """Lets go of the connections that are kept."""
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    def keep(self, connection: _Connection) -> None:
        """Takes a connection back whose answer has been read to its end."""
        connection.idle_since = time.monotonic()
        if (
            connection.fit
            and connection.context in (None, self.context)
            and len(self._idle) < MAX_IDLE
        ):
            self._idle.append(connection)
        else:
            connection.abort()

    async def _connection(self, url: httpx2.URL, seconds: float | None) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.fit and connection.context in (None, self.context):
                return connection
            connection.abort()
        return await _within(seconds, self._opened(url), _CONNECTING)

    async def _opened(self, url: httpx2.URL) -> _Connection:
        secure = url.scheme == "https"
        port = url.port or (443 if secure else 80)
        context = self.context if secure else None
        name = self._server_name or url.host if secure else None
        if self._proxy is None:
            reader, writer = await asyncio.open_connection(
                url.host, port, limit=MAX_HEAD, ssl=context, server_hostname=name
            )
        else:
            reader, writer = await asyncio.open_connection(
                sock=await dig(self._proxy, url.host, port),
                limit=MAX_HEAD,
                ssl=context,
                server_hostname=name,
            )
        return _Connection(reader, writer, context)


class _Body(httpx2.AsyncByteStream):
    """An answer's body, as it comes."""

    def __init__(
        self,
        transport: LeanTransport,
        connection: _Connection,
        status: int,
        headers: httpx2.Headers,
        seconds: float | None,
    ) -> None:
        self._transport = transport
        self._connection: _Connection | None = connection
        self._reader = connection.reader
        self._status = status
        self._headers = headers
        self._seconds = seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces():
            yield piece
        connection, self._connection = self._connection, None
        if connection is not None:
            self._give_back(connection)

    async def aclose(self) -> None:
        """Ends the connection, unless the body has been read to its end."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    def _give_back(self, connection: _Connection) -> None:
        if self._keeps():
            self._transport.keep(connection)
        else:
            connection.abort()

    def _keeps(self) -> bool:
        framed = "content-length" in self._headers or self._chunked or self._status in _BODILESS
        return framed and "close" not in self._headers.get("connection", "").lower()

    @property
    def _chunked(self) -> bool:
        return "chunked" in self._headers.get("transfer-encoding", "").lower()

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._status in _BODILESS:
            return
        if self._chunked:
            while size := await self._chunk_size():
                async for piece in self._exactly(size):
                    yield piece
                await self._line()
            while await self._line():
                pass  # trailers
        elif "content-length" in self._headers:
            async for piece in self._exactly(_number(self._headers["content-length"], 10)):
                yield piece
        else:
            while piece := await self._read(_PIECE):
                yield piece

    async def _chunk_size(self) -> int:
        return _number((await self._line()).partition(b";")[0].decode("latin-1"), 16)

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size > 0:
            piece = await self._read(min(size, _PIECE))
            if not piece:
                raise httpx2.RemoteProtocolError("the answer ended before its body did")
            size -= len(piece)
            yield piece

    async def _read(self, most: int) -> bytes:
        return await _within(self._seconds, self._reader.read(most), _READING)

    async def _line(self) -> bytes:
        return await _line(self._reader, self._seconds)


async def _encoded(request: httpx2.Request) -> bytes:
    lines = [f"{request.method} ".encode(), request.url.raw_path, b" HTTP/1.1\r\n"]
    for name, value in request.headers.raw:
        lines += [name, b": ", value, b"\r\n"]
    return b"".join([*lines, b"\r\n", await request.aread()])


async def _head(reader: asyncio.StreamReader, seconds: float | None) -> tuple[int, httpx2.Headers]:
    while True:
        version, _, rest = (await _line(reader, seconds)).partition(b" ")
        if not version.startswith(b"HTTP/1."):
            raise httpx2.RemoteProtocolError("the answer is not HTTP/1")
        status = _number(rest[:3].decode("latin-1"), 10)
        headers = await _headers(reader, seconds)
        if version == b"HTTP/1.0":
            headers.setdefault("connection", "close")
        if status >= 200:  # the answer proper
            return status, headers


async def _headers(reader: asyncio.StreamReader, seconds: float | None) -> httpx2.Headers:
    headers: list[tuple[bytes, bytes]] = []
    size = 0
    while line := await _line(reader, seconds):
        size += len(line)
        name, colon, value = line.partition(b":")
        if not colon or size > MAX_HEAD:
            raise httpx2.RemoteProtocolError("the answer's head can't be read")
        headers.append((name.strip(), value.strip()))
    return httpx2.Headers(headers)


async def _line(reader: asyncio.StreamReader, seconds: float | None) -> bytes:
    """A line without its end."""
    try:
        line = await _within(seconds, reader.readuntil(b"\n"), _READING)
    except asyncio.IncompleteReadError as error:
        raise httpx2.RemoteProtocolError("the server closed without an answer") from error
    except asyncio.LimitOverrunError as error:
        raise httpx2.RemoteProtocolError("a line of the answer has no end") from error
    return line.rstrip(b"\r\n")


def _number(text: str, base: int) -> int:
    with contextlib.suppress(ValueError):
        number = int(text.strip(), base)
        if number >= 0:
            return number
    raise httpx2.RemoteProtocolError("the answer holds something else where a number belongs")


_Errors = tuple[type[httpx2.TransportError], type[httpx2.TransportError]]

_CONNECTING: Final[_Errors] = (httpx2.ConnectTimeout, httpx2.ConnectError)
_WRITING: Final[_Errors] = (httpx2.WriteTimeout, httpx2.WriteError)
_READING: Final[_Errors] = (httpx2.ReadTimeout, httpx2.ReadError)


async def _within(seconds: float | None, step: Awaitable[T], errors: _Errors) -> T:
    """A step within its time, with httpx's errors."""
    late, failed = errors
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await step
    except TimeoutError as error:
        if limit.expired():
            raise late("too slow") from error
        raise failed(str(error) or "timed out") from error  # the kernel's own
    except OSError as error:  # ssl.SSLError is one
        raise failed(str(error) or type(error).__name__) from error
