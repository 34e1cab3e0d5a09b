"""Listening sockets, and the file with their ports."""

import errno
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from services.process.errors import ExternalFailure
from services.process.files import replace_file

ALL_ADDRESSES: Final = "::"
"""IPv6 and IPv4, whatever the machine's defaults; only IPv4 on machines without IPv6."""

_BACKLOG: Final = 1024
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})


def listen(host: str, port: int, *, buffers: int = 0) -> socket.socket:
    """Open a listening TCP socket; port 0 means any free one.

    `buffers` is the size of the kernel's buffers of each connection, by default the system's.
    """
    try:
        listener = _listen(host, port)
    except socket.gaierror as error:
        raise ExternalFailure(f"can't listen on {host}: {error.strerror}") from error
    except OSError as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        reason = os.strerror(error.errno) if error.errno else error
        raise ExternalFailure(f"can't listen on {where}: {reason}") from error
    # Accepted sockets inherit options. asyncio sets this one only where the protocol was named;
    # without it, an answer of two writes waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if buffers:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
    return listener


def _listen(host: str, port: int) -> socket.socket:
    if host == ALL_ADDRESSES:
        try:
            return socket.create_server(
                (host, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
            )
        except (OSError, ValueError) as error:  # ValueError: no dual stack on this system
            if isinstance(error, OSError) and error.errno not in _NO_IPV6:
                raise
            host = "0.0.0.0"  # noqa: S104 - all addresses were asked for
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = addresses[0]
    return socket.create_server((address[0], address[1]), family=family, backlog=_BACKLOG)


def write_ports(path: Path | None, ports: Mapping[str, int]) -> None:
    """Write the ports of a process, such as `{"metrics": 9101}`, as JSON, if there is a path."""
    if path is None:
        return
    try:
        content = json.dumps(dict(ports), sort_keys=True) + "\n"
        replace_file(path, content.encode(), mode=0o644)
    except OSError as error:
        raise ExternalFailure(f"can't write the ports file {path}: {error.strerror}") from error
