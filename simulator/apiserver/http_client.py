"""How the stand-in calls webhooks: HTTP/1.1 over verified TLS, as Go's client would.

The request looks like the recorded one (same headers, same order); connections are kept and used
again for 90 seconds; a POST is sent again only where nothing of it was written, that is, when the
kept connection was found closed. Failures carry the texts that Go's client gives, since they end
up in what people read from `kubectl`.
"""

import asyncio
import gzip
import hashlib
import socket
import ssl
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httptools

IDLE_SECONDS = 90.0
BODY_LIMIT = 16 * 2**20
_MISMATCH = {62: "host", 64: "address"}


class CallFailed(Exception):
    """The webhook gave no answer; the text is Go's for the same failure."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a webhook answers.

    Args:
        url: as error messages name it, with its query.
        host: what is dialled.
        port: what is dialled.
        server_name: the name its certificate must be valid for.
        roots: PEM bundle to trust; the system's roots if empty.
    """

    url: str
    host: str
    port: int
    server_name: str
    roots: bytes = b""


@dataclass(slots=True)
class Answer:
    """A complete response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    keep_alive: bool = False


class _Reading:
    """Collects one response; httptools calls the methods."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.done = False
        self._pieces: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        if sum(map(len, self._pieces)) > BODY_LIMIT:
            raise CallFailed("http: request body too large")

    def on_message_complete(self) -> None:
        self.done = True
        body = b"".join(self._pieces)
        if self.answer.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.answer.body = body
        self.answer.status = self._parser.get_status_code()
        self.answer.keep_alive = self._parser.should_keep_alive()


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0

    @property
    def usable(self) -> bool:
        fresh = time.monotonic() - self.idle_since < IDLE_SECONDS
        return fresh and not self.reader.at_eof() and not self.writer.is_closing()


class WebhookClient:
    """Calls webhooks and keeps their connections."""

    def __init__(self) -> None:
        self._idle: dict[Endpoint, list[_Connection]] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.opened = 0
        """Connections opened so far."""

    async def post(self, endpoint: Endpoint, body: bytes, seconds: float) -> Answer:
        """Posts a JSON body and reads the whole answer.

        Args:
            endpoint: where to.
            body: what to send.
            seconds: time for all of it, dialling included.

        Raises:
            CallFailed: no complete answer in time.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(endpoint, body)
        except TimeoutError:
            raise CallFailed(f'Post "{endpoint.url}": context deadline exceeded') from None
        except CallFailed as error:
            raise CallFailed(f'Post "{endpoint.url}": {error}') from error

    @property
    def idle(self) -> int:
        """Connections that are kept and look usable."""
        return sum(one.usable for kept in self._idle.values() for one in kept)

    def close(self) -> None:
        """Closes what is kept."""
        for kept in self._idle.values():
            for connection in kept:
                connection.writer.transport.abort()
        self._idle.clear()

    async def _exchange(self, endpoint: Endpoint, body: bytes) -> Answer:
        key = _connection_key(endpoint)
        connection = self._kept(key) or await self._dial(endpoint)
        try:
            connection.writer.write(_head(endpoint, len(body)) + body)
            await connection.writer.drain()
            answer = await _read(connection.reader)
        except BaseException as error:
            connection.writer.transport.abort()
            if isinstance(error, OSError):
                raise CallFailed(_network_text(error, endpoint)) from error
            raise
        if answer.keep_alive:
            connection.idle_since = time.monotonic()
            self._idle.setdefault(key, []).append(connection)
        else:
            connection.writer.close()
        return answer

    def _kept(self, key: Endpoint) -> _Connection | None:
        kept = self._idle.get(key, [])
        while kept:
            connection = kept.pop()
            if connection.usable:
                return connection
            connection.writer.transport.abort()
        return None

    async def _dial(self, endpoint: Endpoint) -> _Connection:
        try:
            reader, writer = await asyncio.open_connection(
                endpoint.host,
                endpoint.port,
                ssl=self._context(endpoint.roots),
                server_hostname=endpoint.server_name,
            )
        except OSError as error:
            raise CallFailed(_network_text(error, endpoint)) from error
        self.opened += 1
        return _Connection(reader, writer, time.monotonic())

    def _context(self, roots: bytes) -> ssl.SSLContext:
        digest = hashlib.sha256(roots).hexdigest()
        if digest not in self._contexts:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
            if roots:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.load_verify_locations(cadata=roots.decode("ascii", "replace"))
            self._contexts[digest] = context
        return self._contexts[digest]


def _connection_key(endpoint: Endpoint) -> Endpoint:
    return Endpoint("", endpoint.host, endpoint.port, endpoint.server_name, endpoint.roots)


def _head(endpoint: Endpoint, length: int) -> bytes:
    split = urlsplit(endpoint.url)
    lines = (
        f"POST {split.path or '/'}?{split.query} HTTP/1.1",
        f"Host: {split.netloc}",
        "User-Agent: kube-apiserver-admission",
        f"Content-Length: {length}",
        "Accept: application/json, */*",
        "Content-Type: application/json",
        "Accept-Encoding: gzip",
        "",
        "",
    )
    return "\r\n".join(lines).encode("latin-1", "replace")


async def _read(reader: asyncio.StreamReader) -> Answer:
    reading = _Reading()
    while not reading.done:
        data = await reader.read(65536)
        if not data:
            raise CallFailed("EOF")
        try:
            reading.feed(data)
        except (httptools.HttpParserError, gzip.BadGzipFile) as error:
            raise CallFailed(f"net/http: HTTP/1.x transport connection broken: {error}") from error
    return reading.answer


def _network_text(error: OSError, endpoint: Endpoint) -> str:
    """What Go says of a network error."""
    where = f"{endpoint.host}:{endpoint.port}"
    match error:
        case ssl.SSLCertVerificationError():
            return f"tls: failed to verify certificate: x509: {_x509_text(error, endpoint)}"
        case ssl.SSLError():
            return f"remote error: tls: {(error.reason or str(error)).lower().replace('_', ' ')}"
        case ConnectionRefusedError():
            return f"dial tcp {where}: connect: connection refused"
        case ConnectionResetError() | BrokenPipeError():
            return f"read tcp {where}: read: connection reset by peer"
        case socket.gaierror():
            return f"dial tcp: lookup {endpoint.host}: no such host"
        case _:
            return f"dial tcp {where}: {error.strerror or error}"


def _x509_text(error: ssl.SSLCertVerificationError, endpoint: Endpoint) -> str:
    if error.verify_code in (9, 10):
        return "certificate has expired or is not yet valid"
    match _MISMATCH.get(error.verify_code):
        case "host":
            return f"certificate is valid for other names, not {endpoint.server_name}"
        case "address":
            return (
                f"cannot validate certificate for {endpoint.server_name} because it doesn't"
                " contain any IP SANs"
            )
        case _:
            return "certificate signed by unknown authority"
