"""Asking the API server: where it is, who we are, and one bounded request at a time.

What is asked and what comes of it are bytes, which a caller decodes for the fields it needs. An
answer that is too long, too late or no answer is a `ClusterError` whose text says what to do.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import httpx2
import msgspec

from services.kube.access import Access
from services.kube.credentials import auth_of, tls_context
from services.kube.kubeconfig import from_files, from_service_account
from services.kube.reach import SERVICE_ACCOUNT, in_a_pod, named_kubeconfig
from services.kube.transport import LeanTransport
from services.kube.tunnel import proxy_of
from services.process.errors import ClusterError
from services.process.text import plain

MAX_BODY: Final = 16 * 1024 * 1024
"""Bytes of an answer: etcd keeps no object above 1.5 MiB, and objects in lists are small."""

MAX_LIST: Final = 64 * 1024 * 1024
"""Bytes of a list that comes as a whole, since the server doesn't support `limit`; some 100 000
mappings. It is in memory twice for a moment: the manifests' limit of the webhook has room for that.
"""

PAGE: Final = 500
"""Objects in a page of a list, as client-go asks for."""

_CONNECT_SECONDS: Final = 3.0
_READ_SECONDS: Final = 8.0
_TOTAL_SECONDS: Final = 12.0
"""For one request from first to last byte: an answer that drips must not hold a caller."""

_ACCEPT: Final = {"Accept": "application/json"}

USER_AGENT: Final = "accelbind"
"""What an API server's audit log, and its rules of flow control, know us by."""

_HINTS: Final[Mapping[int, str]] = {
    401: " (is the token still good?)",
    403: " (its RBAC rules must allow this to us)",
}


def load_config(
    kubeconfig: Path | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    service_account: str = SERVICE_ACCOUNT,
) -> Access | None:
    """How to reach the API server, or None where nothing says how.

    In this order: the file named, the files that `KUBECONFIG` names, the pod's service account.

    Args:
        kubeconfig: A kubeconfig file, if one was named.
        environment: Where `KUBECONFIG` and `KUBERNETES_SERVICE_*` are looked up.
        service_account: Folder of the pod's service account.

    Raises:
        ClusterError: What was named can't be used.
    """
    named = named_kubeconfig(kubeconfig, environment)
    if named:
        return from_files(named, several=kubeconfig is None)
    if in_a_pod(environment, service_account):
        return from_service_account(service_account, environment)
    return None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answered.

    Args:
        status: HTTP status code.
        body: The whole body.
        retry_after: Seconds that it asks us to wait before asking again; 0 if it doesn't.
        date: What its clock says (RFC 9110, `Date`); empty if it doesn't tell.
    """

    status: int
    body: bytes
    retry_after: int = 0
    date: str = ""


class BadStatus(ClusterError):
    """The API server answers, but says no.

    Attributes:
        status: HTTP status code.
        retry_after: As in `Answer`.
    """

    def __init__(self, text: str, answer: Answer) -> None:
        super().__init__(text)
        self.status = answer.status
        self.retry_after = answer.retry_after


class TooLong(ClusterError):
    """An answer, or a line of it, is longer than it may be."""


class Expired(ClusterError):
    """What is known of a kind is too old, or too doubtful, to go on from: list anew."""


class ClusterClient:
    """An authenticated client of one API server; close it, or use it as a context manager.

    Args:
        config: Where and who, from `load_config`.

    Raises:
        ClusterError: Its certificates or credentials can't be used.
    """

    def __init__(self, config: Access) -> None:
        self.server: str = config.server
        try:
            self._http = _http_client(config)
        except (ClusterError, httpx2.InvalidURL) as error:
            raise ClusterError(
                f"the credentials for {self.server} can't be used: {error}"
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Lets go of the connections."""
        await self._http.aclose()

    async def get(self, path: str, params: Mapping[str, str | int] | None = None) -> bytes | None:
        """The object or list at a path, as JSON; None where there is none.

        Args:
            path: Absolute path, `/api/v1/…`.
            params: Query parameters.

        Raises:
            ClusterError: Away, too slow, too long, or it says no.
        """
        answer = await self.request("GET", path, params=params)
        if answer.status == httpx2.codes.NOT_FOUND:
            return None
        return self.expect(answer, f"GET {path}").body

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod as JSON; None where there is none of that name.

        Raises:
            ClusterError: As `get`.
        """
        return await self.get(f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}")

    async def pages(self, path: str, *, limit: int = PAGE) -> AsyncIterator[bytes]:
        """A list page by page, each as JSON, in the state of one resource version.

        Args:
            path: The list's path, such as `/apis/fpga.intel.com/v2/fpgaregions`.
            limit: Objects in a page.

        Raises:
            ClusterError: As `get`; also where the list isn't there or its paging has expired.
        """
        params: dict[str, str | int] = {"limit": limit}
        while True:
            answer = await self.request("GET", path, params=params)
            body = self.expect(answer, f"GET {path}").body
            yield body
            token = _continue_token(body, path)
            if not token:
                return
            params["continue"] = token

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: object = None,
        content_type: str = "application/json",
        whole: bool = False,
    ) -> Answer:
        """One request, whatever its answer's status.

        Args:
            method: HTTP method.
            path: Absolute path.
            params: Query parameters.
            body: What to send, encoded as JSON; nothing if None.
            content_type: What the body is, such as `application/merge-patch+json`.
            whole: Whether the answer may have `MAX_LIST` bytes, rather than `MAX_BODY`.

        Raises:
            ClusterError: No answer, or one that is too long.
        """
        try:
            return await self._once(method, path, params, body, content_type, whole=whole)
        except _Dropped:
            if method != "GET":
                raise
        # Idle connections are closed by either side, sometimes just as they are used.
        await asyncio.sleep(random.uniform(0.02, 0.1))  # noqa: S311 - jitter, not a secret
        return await self._once(method, path, params, body, content_type, whole=whole)

    async def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None,
        body: object,
        content_type: str,
        *,
        whole: bool,
    ) -> Answer:
        headers = {} if body is None else {"Content-Type": content_type}
        content = None if body is None else msgspec.json.encode(body)
        async with (
            self._translated(f"{method} {path}"),
            asyncio.timeout(_TOTAL_SECONDS),
            self._http.stream(
                method, path, params=params, content=content, headers=_ACCEPT | headers
            ) as response,
        ):
            most = MAX_LIST if whole else MAX_BODY
            return await _whole(response, f"{method} {path}", most)

    @asynccontextmanager
    async def lines(
        self, path: str, params: Mapping[str, str | int], *, idle_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer that goes on and on, such as a watch, as they come.

        Lines end at the byte 0x0a and nowhere else: JSON may hold the other line ends raw.

        Args:
            path: Absolute path.
            params: Query parameters.
            idle_seconds: How long nothing may come.

        Raises:
            ClusterError: As `get`; while iterating too.
        """
        what = f"GET {path}"
        timeout = httpx2.Timeout(idle_seconds, connect=_CONNECT_SECONDS)
        request = self._http.build_request(
            "GET", path, params=params, headers=_ACCEPT, timeout=timeout
        )
        async with self._translated(what):
            response = await self._http.send(request, stream=True)
        try:
            if response.status_code != httpx2.codes.OK:
                async with self._translated(what), asyncio.timeout(_TOTAL_SECONDS):
                    answer = await _whole(response, what, MAX_BODY)
                self.expect(answer, what)
            async with aclosing(self._lines(response, what)) as lines:
                yield lines
        finally:
            await response.aclose()

    async def _lines(self, response: httpx2.Response, what: str) -> AsyncGenerator[bytes, None]:
        rest = bytearray()
        async with self._translated(what):
            async for chunk in response.aiter_bytes():
                *whole, last = chunk.split(b"\n")
                for piece in whole:
                    yield bytes(rest + piece)
                    rest.clear()
                rest += last
                if len(rest) > MAX_BODY:
                    raise TooLong(f"a line of {what} is longer than {MAX_BODY} bytes")
        if rest:
            yield bytes(rest)

    def expect(self, answer: Answer, what: str) -> Answer:
        """The answer, if it is a good one.

        Args:
            answer: What came.
            what: What was asked, for the message.

        Raises:
            BadStatus: Its status is no success.
        """
        if httpx2.codes.is_success(answer.status):
            return answer
        said = _message(answer.body)
        hint = _HINTS.get(answer.status, "")
        raise BadStatus(
            f"the API server {self.server} answers {answer.status} to {what}{said}{hint}", answer
        )

    @asynccontextmanager
    async def _translated(self, what: str) -> AsyncIterator[None]:
        """Turns the HTTP client's errors into ours."""
        where = f"the API server {self.server}"
        try:
            yield
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise ClusterError(f"{where} doesn't answer {what} in time") from error
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError) as error:
            raise _Dropped(f"{where} closed the connection during {what}: {error}") from error
        except httpx2.ConnectError as error:
            raise ClusterError(f"{where} can't be reached: {error}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            text = str(error) or type(error).__name__
            raise ClusterError(f"{where} can't be asked ({what}): {text}") from error


def _http_client(config: Access) -> httpx2.AsyncClient:
    transport = LeanTransport(
        tls_context(config) if config.server.startswith("https:") else None,
        server_name=config.server_name,
        proxy=proxy_of(config.server, config.proxy, os.environ),
    )

    def show(certificate: bytes, key: bytes) -> None:
        if transport.context is not None:
            transport.context = tls_context(config, certificate, key)

    return httpx2.AsyncClient(
        base_url=config.server,
        auth=auth_of(config, show),
        headers=[("User-Agent", USER_AGENT), *config.headers],
        transport=transport,
        timeout=httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
    )


class _Dropped(ClusterError):
    """The connection ended under a request."""


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta


class _Status(msgspec.Struct):
    message: str = ""


def segment(text: str) -> str:
    """A name as one segment of a path, whatever it holds."""
    if text in {"", ".", ".."}:
        raise ClusterError(f'"{text}" is no name to ask the API server for')
    return quote(text, safe="")


def _continue_token(body: bytes, path: str) -> str:
    try:
        return msgspec.json.decode(body, type=_List).metadata.continue_
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ClusterError(f"the answer to GET {path} is no list: {error}") from error


def _message(body: bytes) -> str:
    """What an error's answer says, as a clause to go on with; empty if it says nothing."""
    try:
        said = msgspec.json.decode(body, type=_Status).message
    except (msgspec.MsgspecError, ValueError, RecursionError):
        said = body[:200].decode(errors="replace").strip()
    return f": {plain(said, 400)}" if said else ""


async def _whole(response: httpx2.Response, what: str, most: int) -> Answer:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > most:
            raise TooLong(f"the answer to {what} is longer than {most} bytes")
    wait = response.headers.get("Retry-After", "")
    retry_after = int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 6 else 0
    date = response.headers.get("Date", "")[:40]
    return Answer(response.status_code, bytes(body), retry_after, date)
