"""Who we are to an API server: a token, its file, a plugin that gives one, a certificate.

A token's file is read anew once a minute, as client-go does: an API server takes an old token of a
service account for a year, but counts who still shows one. And it is read, or its plugin asked,
when what it gave last is refused (401). Plugins are spoken to as
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
says.
"""

import asyncio
import contextlib
import os
import signal
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import httpx2
import msgspec

from services.kube.access import Access, Plugin
from services.process.errors import ClusterError
from services.process.text import plain

REREAD_SECONDS: Final = 60.0
PLUGIN_SECONDS: Final = 10.0
"""How long a plugin may take: some ask a server of their own."""
LAST_WORD_SECONDS: Final = 1.0
"""How long one that has been ended may take for it."""
_UNAUTHORIZED: Final = 401

Shown: TypeAlias = Callable[[bytes, bytes], None]
"""Is given a certificate, PEM, and its key, which are to be shown from now on."""


def auth_of(access: Access, shown: Shown) -> httpx2.Auth | None:
    """What adds to requests who sends them; None where a certificate says it all.

    Args:
        access: how to reach an API server.
        shown: told the certificate that a plugin gives.
    """
    if access.token_file is not None:
        return _Bearer(_TokenFile(access.token_file))
    if access.token:
        return _Bearer(_Token(access.token))
    if access.plugin is not None:
        return _Bearer(_Asked(access.plugin, shown))
    if access.login is not None:
        return httpx2.BasicAuth(*access.login)
    return None


def tls_context(access: Access, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext:
    """How to speak TLS to the API server.

    As in Go, what is in a CA's file is trusted as it stands: a CA below another one, and one that
    later versions of Python find too old.

    Args:
        access: Who it is.
        certificate: Ours, PEM, if another one than `access` has.
        key: Its key.

    Raises:
        ClusterError: What is to be trusted or shown can't be used.
    """
    context = (
        ssl.create_default_context() if access.authority is None else _trusting(access.authority)
    )
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate or access.certificate:
        _show(context, certificate or access.certificate, key if certificate else access.key)
    return context


def _trusting(authority: bytes) -> ssl.SSLContext:
    """A context that trusts these CAs and nobody else, be they none at all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # What isn't ASCII can only be a comment.
        context.load_verify_locations(cadata=authority.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise ClusterError(f"its certificate-authority holds no certificates: {error}") from error
    return context


def _show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Loads a pair from memory: `ssl` only takes paths, and there may be no disk to write to."""
    descriptor = os.memfd_create("pair")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(key + b"\n" + certificate)
        # OpenSSL would ask for the password of an encrypted key on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    except ssl.SSLError as error:
        raise ClusterError(
            "the client certificate and key are no pair of a certificate and its unencrypted key:"
            f" {error.reason or error}"
        ) from error
    finally:
        os.close(descriptor)


class _Source(Protocol):
    """Where a token comes from."""

    async def token(self, refused: str | None = None) -> str:
        """The token to show, empty for none; another one than was refused, if there is one."""


class _Bearer(httpx2.Auth):
    """Shows a token, and a newer one if it is refused."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """As httpx wants it."""
        token = await self._source.token()
        self._sign(request, token)
        response = yield request
        if response.status_code != _UNAUTHORIZED:
            return
        newer = await self._source.token(refused=token)
        if newer != token or not token:
            self._sign(request, newer)
            yield request

    @staticmethod
    def _sign(request: httpx2.Request, token: str) -> None:
        if token:
            request.headers["Authorization"] = f"Bearer {token}"


class _Token:
    def __init__(self, token: str) -> None:
        self._token = _checked(token, "the kubeconfig's token")

    async def token(self, refused: str | None = None) -> str:  # noqa: ARG002 - there is no other one
        return self._token


class _TokenFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read = 0.0

    async def token(self, refused: str | None = None) -> str:
        old = time.monotonic() - self._read >= REREAD_SECONDS
        if refused is not None or old or not self._token:
            try:
                self._token = self._read_file()
                self._read = time.monotonic()
            except ClusterError:
                if refused is not None or not self._token:
                    raise
        return self._token

    def _read_file(self) -> str:
        try:
            return _checked(self._path.read_text(), f"the token file {self._path}")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise ClusterError(f"the token file {self._path} can't be read: {why}") from error


class _Given(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Credential(msgspec.Struct):
    status: _Given | None = None


class _Asked:
    """What a plugin gives, which is asked once however many need it."""

    def __init__(self, plugin: Plugin, shown: Shown) -> None:
        self._plugin = plugin
        self._shown = shown
        self._given: _Given | None = None
        self._asking = asyncio.Lock()

    async def token(self, refused: str | None = None) -> str:
        given = self._given
        if given is None or refused == given.token:
            async with self._asking:
                if self._given is given:
                    self._given = await self._ask()
                given = self._given
        return given.token if given else ""

    async def _ask(self) -> _Given:
        who = f"the credential plugin {self._plugin.command[0]}"
        try:
            credential = msgspec.json.decode(await _output(self._plugin, who), type=_Credential)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            why = plain(str(error), 200)
            raise ClusterError(f"{who} prints no ExecCredential: {why}") from error
        given = credential.status or _Given()
        if given.client_certificate_data:
            self._shown(given.client_certificate_data.encode(), given.client_key_data.encode())
        if given.token or not given.client_certificate_data:
            _checked(given.token, f"what {who} prints")
        return given


async def _output(plugin: Plugin, who: str) -> bytes:
    """What a plugin prints; it doesn't outlive the question."""
    try:
        process = await asyncio.create_subprocess_exec(
            *plugin.command,
            env={**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": _question(plugin)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = f"{error}{plugin.hint and ': '}{plain(plugin.hint, 400)}"
        raise ClusterError(f"{who} can't be run: {why}") from error
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            said, complaint = await process.communicate()
    except TimeoutError as error:
        raise ClusterError(f"{who} takes longer than {PLUGIN_SECONDS:.0f} s") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # itself, and what it has started
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await process.communicate()  # to the end: only that closes its pipes
    if process.returncode:
        why = plain(complaint.decode(errors="replace").strip(), 400)
        raise ClusterError(f"{who} fails with {process.returncode}: {why}")
    return said


def _question(plugin: Plugin) -> str:
    """What a plugin is told: which answer is wanted, that there is nobody to ask, and of whom."""
    spec: dict[str, object] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    told = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(told).decode()


def _checked(token: str, where: str) -> str:
    """A token as it goes into a header."""
    token = token.strip()
    if not token:
        raise ClusterError(f"{where} holds no token: are you logged in?")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ClusterError(f"{where} holds something else than one token")
    return token
