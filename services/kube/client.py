"""Bounded requests to the API server, and what their errors mean.

Bodies are bytes. A refusal and a missing, late or too long answer are a `ClusterError`.
"""

import asyncio
import os
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote

import httpx2
import msgspec

from services.kube.access import CONNECT_SECONDS, Access, HttpClients
from services.process.errors import AccelbindError, ClusterError
from services.process.json import UNREADABLE
from services.process.text import plain

# Bytes of an answer: objects in lists are small.
MAX_BODY: Final = 16 * 1024 * 1024

# Bytes of an object, and of a line of a watch, which has one: an API server accepts 3 MiB.
MAX_OBJECT: Final = 4 * 1024 * 1024

# For a request from first to last byte: httpx2's own time-outs start over with each byte. Beyond
# the time in which nothing may be received.
_MORE_SECONDS: Final = 4.0

# For a connection that is being opened when its request is cancelled.
_HANDSHAKE_SECONDS: Final = 0.5

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409

# Failures that are independent of the request.
_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})

_WARNING: Final = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')

_HINTS: Final[Mapping[int, str]] = {
    UNAUTHORIZED: " (is the token still valid?)",
    FORBIDDEN: " (RBAC must allow this)",
}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer of the API server."""

    status: int
    body: bytes
    retry_after: int = 0
    """Seconds to wait before the next request, if the server requests that."""
    warnings: tuple[str, ...] = ()
    """Texts for the person who made the request."""


class Status(msgspec.Struct):
    """An API server's description of an error (`Status` of meta/v1)."""

    code: int = 0
    message: str = ""


class BadStatus(ClusterError):
    """The API server answers, but refuses."""

    def __init__(self, text: str, status: int, retry_after: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after
        """As in `HttpResponse`."""


class Conflict(BadStatus):
    """An object has changed since it was read, or another one has its name."""


class TooLong(ClusterError):
    """An answer, an object or a list is larger than its limit."""


class Unreadable(ClusterError):
    """An answer, or a line of one, can't be decoded."""


class Dropped(ClusterError):
    """The connection ended during a request."""


def will_pass(error: ClusterError) -> bool:
    """Whether the same request by the same client may succeed later."""
    if isinstance(error, BadStatus):
        return error.status in _TRANSIENT
    return not isinstance(error, (Unreadable, TooLong))


def is_outage(error: ClusterError) -> bool:
    """Whether the API server gives no answer, or none but its own failure (5xx)."""
    if isinstance(error, BadStatus):
        return httpx2.codes.is_server_error(error.status)
    return not isinstance(error, (Unreadable, TooLong))


def requested_pause(error: AccelbindError) -> float:
    """Return the seconds to wait that the server requests; 0 without a request."""
    return error.retry_after if isinstance(error, BadStatus) else 0.0


class ClusterClient:
    """An authenticated client of one API server; close it, or use it as a context manager."""

    def __init__(self, access: Access) -> None:
        self.server: str = access.name or access.server
        self._seconds = access.seconds + _MORE_SECONDS
        self._http = HttpClients(access)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def get(self, path: str, params: Mapping[str, str | int] | None = None) -> bytes | None:
        """The object or list at an absolute path, as JSON; None if it doesn't exist."""
        answer = await self.request("GET", path, params=params)
        if answer.status == NOT_FOUND:
            return None
        return self.expect(answer, f"GET {path}").body

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> HttpResponse:
        """Make one request and return its answer, whatever its status.

        A `body` that isn't None is sent as JSON.
        """
        http = self._http.current()
        request = http.build_request(
            method,
            path,
            params=params,
            content=None if body is None else msgspec.json.encode(body),
            headers=self._http.authorization()
            | ({} if body is None else {"Content-Type": content_type}),
        )
        try:
            return await self._send(http, request, path)
        except Dropped:
            if method != "GET":
                raise
        # Either side closes idle connections, sometimes at the moment of a request.
        await asyncio.sleep(random.uniform(0.02, 0.1))  # noqa: S311 - jitter, not a secret
        return await self._send(http, request, path)

    async def _send(
        self, http: httpx2.AsyncClient, request: httpx2.Request, path: str
    ) -> HttpResponse:
        what = f"{request.method} {path}"
        async with self._translated(what), asyncio.timeout(self._seconds):
            response = await _opened(http, request)
            try:
                return await _read_whole(response, what)
            finally:
                await response.aclose()

    @asynccontextmanager
    async def lines(
        self, path: str, params: Mapping[str, str | int], *, seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open an answer that the server ends by itself, such as a watch; yield its lines.

        One that goes on for more than `seconds` is an error.
        """
        what = f"GET {path}"
        # Whether bytes arrive or not: a proxy may keep the connection of a dead server alive.
        deadline = asyncio.get_running_loop().time() + seconds
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        http = self._http.current()
        request = http.build_request(
            "GET", path, params=params, timeout=timeout, headers=self._http.authorization()
        )
        async with self._translated(what), asyncio.timeout(min(seconds, self._seconds)):
            response = await _opened(http, request)
        try:
            if response.status_code != httpx2.codes.OK:
                async with self._translated(what), asyncio.timeout(self._seconds):
                    answer = await _read_whole(response, what)
                self.expect(answer, what)
            async with aclosing(self._lines(response, what, deadline)) as lines:
                yield lines
        finally:
            await response.aclose()

    async def _lines(
        self, response: httpx2.Response, what: str, deadline: float
    ) -> AsyncGenerator[bytes, None]:
        rest = bytearray()
        async with self._translated(what):
            chunks = _raw_chunks(response, what)
            while True:
                async with asyncio.timeout_at(deadline):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    break
                await asyncio.sleep(0)  # a chunk may be a byte
                # Not `splitlines`: JSON may hold other line ends unescaped, such as U+0085.
                *whole, last = chunk.split(b"\n")
                for piece in whole:
                    yield bytes(rest + piece)
                    rest.clear()
                rest += last
                if len(rest) > MAX_OBJECT:
                    raise TooLong(f"a line of {what} is longer than {MAX_OBJECT} bytes")
        if rest:
            yield bytes(rest)

    def expect(self, answer: HttpResponse, what: str) -> HttpResponse:
        """Return the answer to `what`; raise `BadStatus` unless it is a success."""
        if httpx2.codes.is_success(answer.status):
            return answer
        hint = _HINTS.get(answer.status, "")
        refused = Conflict if answer.status == CONFLICT else BadStatus
        raise refused(
            f"the API server {self.server} answers {answer.status} to {what}"
            f"{_message(answer.body)}{hint}",
            answer.status,
            answer.retry_after,
        )

    @asynccontextmanager
    async def _translated(self, what: str) -> AsyncIterator[None]:
        """Translate the errors of the HTTP client."""
        where = f"the API server {self.server}"
        try:
            yield
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise ClusterError(f"{where} doesn't answer {what} in time") from error
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError) as error:
            detail = _innermost(error)
            raise Dropped(f"{where} closed the connection during {what}: {detail}") from error
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            raise ClusterError(f"{where} can't be reached: {_innermost(error)}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise ClusterError(f"{what} to {where} failed: {_innermost(error)}") from error


async def _opened(http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """Send a request, and return its answer, whose body is read later."""
    sending = asyncio.ensure_future(http.send(request, stream=True))
    try:
        return await asyncio.shield(sending)
    except asyncio.CancelledError:
        # httpcore leaves a connection open whose TLS handshake is cancelled, so it may end first.
        try:
            await asyncio.wait([sending], timeout=_HANDSHAKE_SECONDS)
        finally:
            is_cancelled = sending.cancel() or sending.cancelled()
        if not is_cancelled and sending.exception() is None:
            await sending.result().aclose()
        raise


def segment(text: str) -> str:
    """Quote a name as one segment of a path; a name that could lead elsewhere is an error."""
    if text in {"", ".", ".."}:
        raise ClusterError(f'"{text}" is not a valid object name')
    return quote(text, safe="")


def _message(body: bytes) -> str:
    """The message in a refusal, after a colon; empty if it has none."""
    try:
        message = msgspec.json.decode(body, type=Status).message
    except UNREADABLE:
        message = body[:400].decode(errors="replace").strip()  # kubectl proxy's own errors are text
    return f": {plain(message, 400)}" if message else ""


def _innermost(error: BaseException) -> str:
    """The text of the original error."""
    # httpx2 itself says only "All connection attempts failed".
    text = _reason(error) or type(error).__name__
    while (inner := error.__cause__ or error.__context__) and not isinstance(inner, ClusterError):
        # A group holds an error for each address of the server.
        error = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else inner
        text = _reason(error) or text
    return plain(text, 400)


def _reason(error: BaseException) -> str:
    # asyncio's errors of sockets have their reason in the number only.
    if not isinstance(error, OSError) or not error.errno or error.filename:
        return str(error)
    if error.strerror and not error.strerror.startswith("Connect call failed"):
        return error.strerror
    return os.strerror(error.errno).lower()


def _raw_chunks(response: httpx2.Response, what: str) -> AsyncIterator[bytes]:
    if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise Unreadable(f"the answer to {what} is {plain(encoding, 40)}, which was not accepted")
    return response.aiter_raw()


async def _read_whole(response: httpx2.Response, what: str) -> HttpResponse:
    body = bytearray()
    async for chunk in _raw_chunks(response, what):
        body += chunk
        if len(body) > MAX_BODY:
            raise TooLong(f"the answer to {what} is longer than {MAX_BODY} bytes")
        await asyncio.sleep(0)  # a chunk may be a byte: other tasks run in between
    # A date in its place, which HTTP allows, is ignored: API servers send seconds.
    wait = response.headers.get("Retry-After", "")
    retry_after = int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 6 else 0
    warnings = tuple(_warnings(response.headers.get_list("Warning")))
    return HttpResponse(response.status_code, bytes(body), retry_after, warnings)


def _warnings(values: Iterable[str]) -> Iterator[str]:
    """The texts of `299 - "text"` (RFC 7234, 5.5)."""
    for value in values:
        for text in _WARNING.findall(value):
            yield re.sub(r"\\(.)", r"\1", text)
