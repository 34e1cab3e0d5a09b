"""How the stand-in calls webhooks: httpx2 over verified TLS, connections kept for 90 seconds.

Failures carry the texts of a real API server where people read them in `kubectl`.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

IDLE_SECONDS = 90.0
_HEADERS = {
    "User-Agent": "kube-apiserver-admission",
    "Accept": "application/json, */*",
    "Content-Type": "application/json",
    "Accept-Encoding": "gzip",
}


class CallFailed(Exception):
    """The webhook gave no answer; the text says why."""


@dataclass(frozen=True, slots=True)
class WebhookAddress:
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


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response."""

    status: int
    body: bytes


class WebhookClient:
    """Calls webhooks: one client, with its connections, for each bundle of roots."""

    def __init__(self) -> None:
        self._clients: dict[bytes, httpx2.AsyncClient] = {}

    async def post(self, endpoint: WebhookAddress, body: bytes, seconds: float) -> HttpResponse:
        """Posts a JSON body and reads the whole answer."""
        dialled = httpx2.URL(endpoint.url).copy_with(host=endpoint.host, port=endpoint.port)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._client(endpoint.roots).post(
                    dialled,
                    content=body,
                    headers={"Host": urlsplit(endpoint.url).netloc},
                    extensions={"sni_hostname": endpoint.server_name},
                )
        except TimeoutError:
            raise CallFailed(f'Post "{endpoint.url}": context deadline exceeded') from None
        except httpx2.HTTPError as error:
            raise CallFailed(f'Post "{endpoint.url}": {_reason(error, endpoint)}') from error
        return HttpResponse(answer.status_code, answer.content)

    async def close(self) -> None:
        """Closes what is kept."""
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    def _client(self, roots: bytes) -> httpx2.AsyncClient:
        if roots not in self._clients:
            context = ssl.create_default_context(cadata=roots.decode("ascii", "replace") or None)
            self._clients[roots] = httpx2.AsyncClient(
                verify=context,
                headers=_HEADERS,
                timeout=None,  # `post` has one for the whole exchange
                trust_env=False,
                limits=httpx2.Limits(max_connections=None, keepalive_expiry=IDLE_SECONDS),
            )
        return self._clients[roots]


def _reason(error: httpx2.HTTPError, endpoint: WebhookAddress) -> str:
    """Why there is no answer."""
    where = f"{endpoint.host}:{endpoint.port}"
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                return f"tls: failed to verify certificate: x509: {cause.verify_message}"
            case ConnectionRefusedError():
                return f"dial tcp {where}: connect: connection refused"
            case socket.gaierror():
                return f"dial tcp: lookup {endpoint.host}: no such host"
    if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError | httpx2.DecodingError):
        return f"EOF: {error}" if str(error) else "EOF"
    return f"dial tcp {where}: {error}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                yield from _causes(one)
        error = error.__cause__ or error.__context__
