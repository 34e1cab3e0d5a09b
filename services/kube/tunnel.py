"""The way to an API server: straight, or through an HTTP proxy that is asked for a tunnel.

Which proxy, a kubeconfig's `proxy-url` tells; else the environment, read as programs in Go read it
(golang.org/x/net/http/httpproxy), so that what holds for kubectl holds here: `NO_PROXY` has names,
addresses and networks, and this machine itself is never asked through a proxy. The tunnel is
HTTP's `CONNECT` (RFC 9110, 9.3.6): what goes through it is TLS between us and the API server.
"""

import asyncio
import base64
import contextlib
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from services.process.errors import ClusterError
from services.process.text import plain

_MAX_REPLY: Final = 64 * 1024
_PIECE: Final = 4096


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy.

    Attributes:
        host: where it is.
        port: the same.
        authorization: what to show it, as `Proxy-Authorization` wants it; empty for nothing.
    """

    host: str
    port: int
    authorization: str = field(default="", repr=False)

    def __str__(self) -> str:
        return _endpoint(self.host, self.port)


class NoTunnel(OSError):
    """The proxy doesn't let us through."""


def proxy_of(server: str, named: str, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy on the way to an API server; None for none.

    Args:
        server: the API server's URL.
        named: the proxy's URL, where a kubeconfig names one.
        environment: tells of proxies otherwise.

    Raises:
        ClusterError: It is one that there is no speaking to.
    """
    url = urlsplit(server)
    if named:
        return _proxy(named, "the kubeconfig's proxy-url")
    variable = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    told = _either(variable, environment)
    port = url.port or (443 if url.scheme == "https" else 80)
    if not told or _is_spared(url.hostname or "", port, _either("NO_PROXY", environment)):
        return None
    return _proxy(told, variable)


async def dig(proxy: Proxy, host: str, port: int) -> socket.socket:
    """A connection through a proxy, on which nothing has been said yet.

    Args:
        proxy: the proxy.
        host: who is to be at the other end.
        port: the same.

    Raises:
        NoTunnel: The proxy says no, or there is no reaching it.
    """
    try:
        tunnel = await _connected(proxy.host, proxy.port)
    except OSError as error:
        raise NoTunnel(f"the proxy {proxy} can't be reached: {error}") from error
    try:
        await _agree(tunnel, proxy, _endpoint(host, port))
    except BaseException:
        tunnel.close()
        raise
    return tunnel


async def _agree(tunnel: socket.socket, proxy: Proxy, target: str) -> None:
    """Has the proxy connect us."""
    shown = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{shown}\r\n"
    await asyncio.get_running_loop().sock_sendall(tunnel, head.encode())
    head, _, rest = (await _reply(tunnel)).partition("\r\n\r\n")
    status = head.partition("\r\n")[0]
    version, _, code = status.partition(" ")
    if not version.startswith("HTTP/1.") or not code.startswith("2"):
        raise NoTunnel(f'the proxy {proxy} answers "{plain(status, 200)}" to CONNECT {target}')
    if rest:  # an API server doesn't speak first
        raise NoTunnel(f"the proxy {proxy} says more than that there is a tunnel")


async def _reply(tunnel: socket.socket) -> str:
    """The head of a proxy's answer, and what came with it."""
    reply = b""
    while b"\r\n\r\n" not in reply:
        piece = await asyncio.get_running_loop().sock_recv(tunnel, _PIECE)
        reply += piece
        if not piece or len(reply) > _MAX_REPLY:
            raise NoTunnel("the proxy's answer to CONNECT has no end")
    return reply.decode("latin-1")


async def _connected(host: str, port: int) -> socket.socket:
    """A connection to the first of a host's addresses that takes one."""
    loop = asyncio.get_running_loop()
    failed = OSError("it has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)  # noqa: FBT003 - so it is called
        try:
            await loop.sock_connect(made, address)
        except OSError as error:
            failed = error
            made.close()
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise failed


def _proxy(told: str, where: str) -> Proxy:
    url = urlsplit(told if "://" in told else f"http://{told}")
    try:
        port = url.port or 80
    except ValueError:
        port = 0
    if url.scheme != "http" or not url.hostname or not port:
        scheme = plain(url.scheme, 20)
        raise ClusterError(
            f"{where} names a proxy that there is no going through (scheme {scheme}): it has to be"
            " http://HOST:PORT, which still has TLS from here to the API server"
        )
    authorization = ""
    if url.username is not None:
        login = f"{unquote(url.username)}:{unquote(url.password or '')}"
        authorization = f"Basic {base64.b64encode(login.encode()).decode()}"
    return Proxy(url.hostname, port, authorization)


def _either(variable: str, environment: Mapping[str, str]) -> str:
    return environment.get(variable) or environment.get(variable.lower()) or ""


def _is_spared(host: str, port: int, no_proxy: str) -> bool:
    """Whether a host is reached without the proxy."""
    address = None
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return any(_matches(entry, host, port, address) for entry in entries if entry)


def _matches(
    entry: str,
    host: str,
    port: int,
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None,
) -> bool:
    if entry == "*":
        return True
    with contextlib.suppress(ValueError):
        network = ipaddress.ip_network(entry, strict=False)
        return address is not None and address in network
    name, colon, digits = entry.rpartition(":")
    if colon:
        if digits != str(port):
            return False
        entry = name.strip("[]")
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(entry) == address
    bare = entry.removeprefix("*")
    return host == bare or host.endswith(bare if bare.startswith(".") else f".{bare}")


def _endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
