"""Checks of `accelbind doctor`: a node's kubelet and plugin."""

import contextlib
import os
import socket
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final

from accelbind.doctor.model import AS_ROOT, Line, failed, ok, unseen
from accelbind.doctor.node import Node
from accelbind.plain_port import NoAnswer
from services.kubelet.sockets import PLUGIN_SOCKET, plugins_folder, registration_socket
from services.process.text import plain

CONNECT_SECONDS: Final = 2.0

_START: Final = (
    "start the kubelet (its log: journalctl -u kubelet), or name its folder with --kubelet-dir"
)


def check_kubelet(node: Node) -> Iterator[Line]:
    """Does the kubelet accept registrations?"""
    path = registration_socket(node.options.kubelet_dir)
    match connect_error(path):
        case None:
            yield ok(f"it listens on {path}")
        case PermissionError():
            yield unseen(f"{path}: user {os.geteuid()} may not connect", AS_ROOT)
        case error:
            yield failed(f"{path}: {error.strerror or 'it does not answer'}", _START)


def connect_error(path: Path) -> OSError | None:
    """Why nothing answers on a socket; None if something does."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_SECONDS)
            probe.connect(str(path))
    except OSError as error:
        return error
    return None


# The plugin --------------------------------------------------------------------------------------


def check_plugin(node: Node) -> Iterator[Line]:
    """Is the plugin alive and registered?"""
    for path, todo in (
        ("/healthz", "restart the plugin: its own sockets hang"),
        ("/readyz", "see node.kubelet and the plugin's log"),
    ):
        try:
            status, answer = node.plugin.get(path)
        except NoAnswer as error:
            yield _unreachable(node, error)
            return
        answered = plain("; ".join(answer.decode(errors="replace").strip().splitlines()), 600)
        text = f"{node.plugin}{path}: {answered}"
        yield ok(text) if status == HTTPStatus.OK else failed(text, todo)


def _unreachable(node: Node, error: NoAnswer) -> Line:
    folder = plugins_folder(node.options.kubelet_dir)
    with contextlib.suppress(OSError):  # the folder is another check's
        sockets = (each for each in folder.iterdir() if PLUGIN_SOCKET.fullmatch(each.name))
        # In a pod the plugin's port is at the pod's address. A plugin that was killed leaves its
        # sockets behind.
        if any(connect_error(each) is None for each in sockets):
            return unseen(
                f"a plugin serves in {folder}, but does not answer on {node.plugin}: {error}",
                "run the doctor in its pod: kubectl exec -n accelbind-system ds/accelbind-plugin"
                " -- accelbind doctor; or give the pod's address as --metrics-host",
            )
    return failed(
        f"no plugin answers on {node.plugin} ({error}), and none serves in {folder}",
        "start it (manifests/overlays, or accelbind plugin); if it runs, check --metrics-port and"
        " --kubelet-dir",
    )
