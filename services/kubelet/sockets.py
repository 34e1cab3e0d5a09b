"""The files and unix sockets in the kubelet's folder: paths, clients and servers."""

import os
import re
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote

import grpc
import grpc.aio

from services.process.errors import KubeletError

API_VERSION: Final = "v1beta1"
"""The only version of the device plugin protocol that kubelets have accepted since 1.10."""

KUBELET_SOCKET: Final = "kubelet.sock"

PLUGIN_SOCKET: Final = re.compile(r"accelbind-[0-9a-f]{8}-[0-9]{1,9}\.sock")
"""The sockets of our plugins: what each chose at its start, and the number of a resource."""

Identity: TypeAlias = tuple[int, int]
"""Inode and time of a socket: inodes of deleted files are soon used again."""

MAX_SOCKET_PATH: Final = 107  # bytes: `sun_path` holds 108 with the NUL at its end (unix(7))

CHANNEL_OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
    # The default authority is the %-encoded path, which some servers in Go refuse.
    ("grpc.default_authority", "localhost"),
    # A new channel must not inherit the back-off of an earlier one to the same path.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also the time that a connection has for its handshake, and the other end may be busy.
    ("grpc.min_reconnect_backoff_ms", 20_000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    # Otherwise a call on a connection that stays open after GOAWAY (a kubelet that freezes while
    # it stops) is retried without a pause until its deadline, with 14 KB per retry.
    ("grpc.enable_retries", 0),
)


def identify(path: Path) -> Identity | None:
    """Return the identity of the file at a path; None if there is none, or it can't be read."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def plugins_folder(kubelet_dir: Path) -> Path:
    """Return the folder of the registration socket and of the plugins' sockets."""
    return kubelet_dir / "device-plugins"


def registration_socket(kubelet_dir: Path) -> Path:
    """Return the socket on which the kubelet accepts registrations."""
    return plugins_folder(kubelet_dir) / KUBELET_SOCKET


def pod_resources_socket(kubelet_dir: Path) -> Path:
    """Return the socket of the PodResources service."""
    return kubelet_dir / "pod-resources" / KUBELET_SOCKET


def dra_socket(kubelet_dir: Path, driver: str) -> Path:
    """Return the socket on which a DRA driver serves the kubelet."""
    return kubelet_dir / "plugins" / driver / "dra.sock"


def dra_registration(kubelet_dir: Path, driver: str) -> Path:
    """Return the socket by which the kubelet finds a DRA driver."""
    return kubelet_dir / "plugins_registry" / f"{driver}-reg.sock"


def checkpoint_file(kubelet_dir: Path) -> Path:
    """Return the file in which the kubelet stores the devices that it has allocated."""
    return plugins_folder(kubelet_dir) / "kubelet_internal_checkpoint"


def dra_checkpoint_file(kubelet_dir: Path) -> Path:
    """Return the file in which the kubelet stores the claims that are prepared."""
    return kubelet_dir / "dra_manager_state"


def address(path: Path) -> str:
    """Return the gRPC target of a socket.

    Raises:
        KubeletError: the path is longer than a unix socket's path may be.
    """
    # gRPC truncates or refuses such a path, with an error that names neither path nor reason.
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise KubeletError(
            f"{path}: {length} bytes are too long for a unix socket's path (at most"
            f" {MAX_SOCKET_PATH}); choose a shorter kubelet folder"
        )
    return "unix:" + quote(os.fsencode(path))


def dial(path: Path, *options: tuple[str, int | str]) -> grpc.aio.Channel:
    """Create a channel to the server on a socket; it connects when first used.

    Raises:
        KubeletError: as `address`.
    """
    return grpc.aio.insecure_channel(address(path), options=(*CHANNEL_OPTIONS, *options))


def listen(server: grpc.aio.Server, path: Path) -> None:
    """Bind a server that has not started yet to a socket, which no server has had before.

    Raises:
        KubeletError: as `address`, or the socket can't be made there.
    """
    target = address(path)
    # gRPC removes an existing file of this path, and the one that is there when the server stops.
    try:
        server.add_insecure_port(target)
    except RuntimeError as error:
        raise KubeletError(
            f"can't make a socket in {path.parent}: is it a folder, and may user {os.geteuid()}"
            " write there?"
        ) from error
