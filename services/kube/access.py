"""Access to the API server: an address that needs no credentials, or a pod's service account.

A person's commands let `kubectl proxy` do the rest: see `accelbind.cluster`.
"""

import contextlib
import os
import socket
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2

from services.process.errors import ClusterError
from services.process.pem import certificate_blocks
from services.process.settings import UNIX
from services.process.text import plain

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# Our name in the API server's audit log and flow control.
USER_AGENT: Final = "accelbind"

CONNECT_SECONDS: Final = 3.0
_READ_SECONDS: Final = 8.0
_PROMPT_SECONDS: Final = 180.0
_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A dead connection is noticed after 60 s, also that of a watch of which nothing is expected."""
_IDLE_CONNECTIONS: Final = 4
# Firewalls drop idle connections silently, some after a few minutes, and the next request on one
# would time out.
_IDLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, and as whom requests are made."""

    server: str
    """A URL, or `unix:` and the path of a socket."""
    account: Path | None = None
    """Folder of a service account: its token, and the CA of the API server."""
    name: str = ""
    """The server in messages; empty for its address."""
    prompts: bool = False
    """Whether a person may have to log in before an answer comes."""

    @property
    def seconds(self) -> float:
        """How long nothing may be received."""
        return _PROMPT_SECONDS if self.prompts else _READ_SECONDS


def find_access(
    api_server: str = "",
    *,
    environment: Mapping[str, str] = os.environ,
    account: Path = SERVICE_ACCOUNT,
) -> Access | None:
    """Access to the address that was given, or by the pod's service account; None without both.

    https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
    """
    if api_server:
        return Access(api_server)
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if not host or not (account / "token").exists():
        return None
    port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
    return Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", account)


def own_namespace(account: Path = SERVICE_ACCOUNT) -> str:
    """The namespace of this pod; empty outside of one."""
    with contextlib.suppress(OSError):
        return (account / "namespace").read_text(encoding="utf-8").strip()
    return ""


def require_access(api_server: str = "") -> Access:
    """The same; a `ClusterError` without both."""
    access = find_access(api_server)
    if access is None:
        raise ClusterError(
            "no API server is known: this is no pod with a service account; start kubectl proxy"
            " --unix-socket=PATH and set --api-server unix:PATH"
        )
    return access


class HttpClients:
    """HTTP clients of one API server: the newest trusts the CA in the file of today."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._authority = b""
        self._clients: list[httpx2.AsyncClient] = []
        self.current()

    def current(self) -> httpx2.AsyncClient:
        """The client for the next request."""
        # Read each time: the file is small, in memory, and replaced years after the start.
        account = self._access.account
        authority = b"" if account is None else _read(account / "ca.crt")
        if not self._clients or authority != self._authority:
            # Requests under way, such as watches, go on with the older client.
            self._clients.append(_create_client(self._access, authority))
            self._authority = authority
        return self._clients[-1]

    def authorization(self) -> dict[str, str]:
        """The header that says who makes a request."""
        # For each request: the kubelet replaces the token, and an API server counts uses of an old
        # one, which it accepts for a year.
        if self._access.account is None:
            return {}
        path = self._access.account / "token"
        token = _read(path).strip().decode(errors="replace")
        # A line end in it would begin another header.
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ClusterError(f"{path} holds no token")
        return {"Authorization": f"Bearer {token}"}

    async def aclose(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.aclose()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ClusterError(f"{path} can't be read: {error.strerror or error}") from error


def _create_client(access: Access, authority: bytes) -> httpx2.AsyncClient:
    # A few compressed bytes could become gigabytes, and httpx2 has no limit for them.
    headers = {
        "User-Agent": USER_AGENT,
        "Accept": "application/json",
        "Accept-Encoding": "identity",
    }
    limits = httpx2.Limits(
        max_keepalive_connections=_IDLE_CONNECTIONS, keepalive_expiry=_IDLE_SECONDS
    )
    timeout = httpx2.Timeout(access.seconds, connect=CONNECT_SECONDS)
    if access.account is None:
        path = access.server.removeprefix(UNIX) if access.server.startswith(UNIX) else None
        return httpx2.AsyncClient(
            # kubectl proxy accepts no other `Host` on a socket.
            base_url=access.server if path is None else "http://localhost",
            headers=headers,
            transport=httpx2.AsyncHTTPTransport(uds=path, limits=limits),
            timeout=timeout,
        )
    context = _trusting(authority, access.account / "ca.crt")
    try:
        return httpx2.AsyncClient(
            base_url=access.server,
            headers=headers,
            verify=context,
            limits=limits,
            timeout=timeout,
            # Through a proxy, a connection ends at the proxy.
            transport=None
            if urllib.request.getproxies()
            else httpx2.AsyncHTTPTransport(
                verify=context, limits=limits, socket_options=_KEEPALIVE
            ),
        )
    except (httpx2.InvalidURL, ValueError, ImportError) as error:
        raise ClusterError(
            "HTTPS_PROXY or ALL_PROXY is not an http:// or https:// URL of a proxy:"
            f" {plain(str(error), 200)}"
        ) from error


def _trusting(authority: bytes, path: Path) -> ssl.SSLContext:
    # Not `create_default_context`: with an empty text it would trust the CAs of the system.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As in Go: every CA in the file is trusted, also one that Python 3.13 rejects, which is strict
    # about extensions, and an intermediate one.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for block in certificate_blocks(authority):
        # As in Go: one that can't be read is skipped.
        with contextlib.suppress(ssl.SSLError):
            context.load_verify_locations(cadata=block.decode("ascii", "ignore"))
    if not context.cert_store_stats()["x509"]:
        raise ClusterError(f"{path} holds no certificates")
    return context
