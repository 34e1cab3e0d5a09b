"""An HTTP client that authenticates to one API server: TLS, tokens, credential plugins, proxies.

A client keeps what it has read, but for token files: after a refusal `ApiConnection` makes a new
one.
"""

import asyncio
import contextlib
import ipaddress
import os
import signal
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec

from services.kube.config import Access, ExecPlugin
from services.process.errors import ClusterError
from services.process.json import UNREADABLE
from services.process.pairs import load_pair
from services.process.pem import certificate_blocks
from services.process.text import plain

PLUGIN_SECONDS: Final = 10.0  # some plugins ask a server
_KILL_SECONDS: Final = 1.0

# Our name in the API server's audit log and flow control.
USER_AGENT: Final = "accelbind"

CONNECT_SECONDS: Final = 3.0
_READ_SECONDS: Final = 8.0
_MOST_INTERIM: Final = 10
_NEXT_HEAD: Final = b"\nHTTP/1."
_HEAD_PART: Final = len(_NEXT_HEAD) - 1
_IDLE_CONNECTIONS: Final = 4
# Firewalls drop idle connections silently, some after a few minutes, and the next request on one
# would time out.
_IDLE_SECONDS: Final = 60.0


def create_http_client(access: Access) -> httpx2.AsyncClient:
    """Create an authenticated client for the paths of the API server."""
    secure = access.server.startswith("https:")
    context = create_tls_context(access) if secure else None
    # A few compressed bytes could become gigabytes, and httpx2 has no limit for them.
    headers = {
        "User-Agent": USER_AGENT,
        "Accept": "application/json",
        "Accept-Encoding": "identity",
    }
    tokens: _TokenFile | _PluginToken | None = None
    if access.token_file is not None:
        tokens = _TokenFile(access.token_file)
    elif access.token:
        token = _checked(access.token, "the kubeconfig's token")
        headers["Authorization"] = f"Bearer {token}"
    elif access.plugin is not None:
        tokens = _PluginToken(access.plugin)

    async def prepare(request: httpx2.Request) -> None:
        request.extensions["trace"] = _close_cancelled_handshake()
        if access.server_name:
            request.extensions["sni_hostname"] = access.server_name
        if tokens is not None:
            request.headers["Authorization"] = f"Bearer {await tokens.token()}"

    try:
        return httpx2.AsyncClient(
            base_url=access.server,
            headers=headers,
            verify=context or False,
            proxy=access.proxy or None,
            trust_env=not _is_this_machine(access.server),
            limits=httpx2.Limits(
                max_keepalive_connections=_IDLE_CONNECTIONS, keepalive_expiry=_IDLE_SECONDS
            ),
            timeout=httpx2.Timeout(_READ_SECONDS, connect=CONNECT_SECONDS),
            event_hooks={"request": [prepare]},
        )
    except (httpx2.InvalidURL, ValueError, ImportError) as error:
        source = "the kubeconfig's proxy-url" if access.proxy else "HTTPS_PROXY or ALL_PROXY"
        raise ClusterError(
            f"{source} is not an http:// or https:// URL of a proxy: {plain(str(error), 200)}"
        ) from error


def _close_cancelled_handshake() -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
    """Trace a request, and close its connection if it is cancelled in the TLS handshake."""
    # httpcore2 does that for errors, but leaves a cancelled one to the garbage collector.
    streams: list[Any] = []

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith("connect_tcp.complete"):
            streams.append(info["return_value"])
        elif event.endswith("start_tls.failed") and streams:
            await streams.pop().aclose()

    return trace


class _BoundedTls(ssl.SSLObject):
    """TLS that ends at a flood of interim answers (`103 Early Hints`)."""

    # httpcore2 skips them without a limit, and reads thousands before other tasks run. The bytes of
    # a JSON answer never contain the beginning of another one.
    _interim = 0
    _last = b""

    def write(self, data: bytes) -> int:  # type: ignore[override]  # anyio writes bytes
        self._interim, self._last = 0, b""
        return super().write(data)

    def read(  # type: ignore[override]  # anyio gives no buffer
        self,
        len: int = 1024,  # noqa: A002 - as in `ssl`
        buffer: bytearray | None = None,
    ) -> bytes:
        data = super().read(len, buffer)
        recent = self._last + data
        self._interim += recent.count(_NEXT_HEAD)
        self._last = recent[-_HEAD_PART:]
        if self._interim > _MOST_INTERIM:
            raise ssl.SSLError(1, f"more than {_MOST_INTERIM} interim answers to one request")
        return data


def create_tls_context(access: Access) -> ssl.SSLContext:
    """Create the TLS context for the API server."""
    context = (
        ssl.create_default_context() if access.authority is None else _trusting(access.authority)
    )
    context.sslobject_class = _BoundedTls
    # As in Go: every CA in the file is trusted, also one that Python 3.13 rejects, which is strict
    # about extensions, and an intermediate one.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.certificate:
        _load_pair(context, access.certificate, access.key)
    return context


def _trusting(authority: bytes) -> ssl.SSLContext:
    # Not `create_default_context`: with an empty text it would trust the CAs of the system.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for block in certificate_blocks(authority):
        # As in Go: one that can't be read is skipped.
        with contextlib.suppress(ssl.SSLError):
            context.load_verify_locations(cadata=block.decode("ascii", "ignore"))
    if not context.cert_store_stats()["x509"]:
        raise ClusterError("its certificate-authority holds no certificates")
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    try:
        load_pair(context, certificate, key)
    except ssl.SSLError as error:
        raise ClusterError(
            "the client certificate and key are not a certificate and its unencrypted key:"
            f" {error.reason or error}"
        ) from error


def _is_this_machine(server: str) -> bool:
    # Go never reaches it through a proxy; httpx2 would, unless NO_PROXY names it.
    host = httpx2.URL(server).host
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class _TokenFile:
    """The token in a file; the last one stays in use while it can't be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""

    async def token(self) -> str:
        # For each request: the kubelet replaces a service account's token, and an API server counts
        # uses of an old one, which it accepts for a year.
        try:
            self._token = self._read()
        except ClusterError:
            if not self._token:
                raise
        return self._token

    def _read(self) -> str:
        try:
            return _checked(self._path.read_text(), f"the token file {self._path}")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ClusterError(f"the token file {self._path} can't be read: {reason}") from error


class _Credentials(msgspec.Struct):
    token: str = ""


class _ExecCredential(msgspec.Struct):
    status: _Credentials | None = None


class _PluginToken:
    """Runs a credential plugin for its token, once.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
    """

    def __init__(self, plugin: ExecPlugin) -> None:
        self._plugin = plugin
        self._printed = ""
        self._running = asyncio.Lock()

    async def token(self) -> str:
        async with self._running:  # once for all waiting requests
            if not self._printed:
                self._printed = await self._run()
        return self._printed

    async def _run(self) -> str:
        name = f"the credential plugin {self._plugin.command}"
        output = await _run_plugin(self._plugin, name)
        try:
            status = msgspec.json.decode(output, type=_ExecCredential).status
        except UNREADABLE as error:
            reason = plain(str(error), 200)
            raise ClusterError(f"{name} prints no ExecCredential: {reason}") from error
        return _checked(status.token if status else "", f"what {name} prints")


async def _run_plugin(plugin: ExecPlugin, name: str) -> bytes:
    """Return the output of a plugin; it and its child processes end with this call."""
    spec = {"interactive": False}  # it has no terminal to ask a person on
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    variables = {each.name: each.value for each in plugin.env or ()}
    variables["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            plugin.command,
            *(plugin.args or ()),
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that its children end with it
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:  # it may have begun to run
        with contextlib.suppress(OSError, ValueError):
            await _end(await starting)
        raise
    except (OSError, ValueError) as error:
        hint = f": {plain(plugin.install_hint, 400)}" if plugin.install_hint else ""
        raise ClusterError(f"{name} can't be run: {error}{hint}") from error
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise ClusterError(f"{name} takes longer than {PLUGIN_SECONDS:.0f} s") from error
    finally:
        await _end(process)
    if process.returncode:
        reason = plain(" ".join(errors.decode(errors="replace").split()), 400)
        raise ClusterError(f"{name} fails with {process.returncode}: {reason}")
    return output


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a plugin and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # A child in a session of its own may keep the pipes open.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILL_SECONDS):
            await process.wait()


def _checked(token: str, where: str) -> str:
    """Return a token without surrounding blanks."""
    token = token.strip()
    if not token:
        raise ClusterError(f"{where} holds no token: are you logged in?")
    # A line end in it would begin another header.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ClusterError(f"{where} holds more than one token")
    return token
