"""What `accelbind doctor` checks about a node's kubelet: sockets, checkpoint, pod resources."""

import asyncio
import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from accelbind.doctor.model import AS_ROOT, Line, failed, ok, skipped, unseen, warning
from accelbind.doctor.node import Node
from accelbind.output import count
from services.kubelet.checkpoint import pod_folders, read_checkpoint
from services.kubelet.pod_resources import active_pods
from services.kubelet.sockets import (
    KUBELET_SOCKET,
    checkpoint_file,
    plugins_folder,
    pod_resources_socket,
)
from services.names import DOMAIN, UNIT_RESOURCE
from services.process.errors import KubeletError

CONNECT_SECONDS: Final = 2.0

OUR_SOCKET: Final = re.compile(r"accelbind-[0-9a-f]{8}-[0-9]{1,9}\.sock")
_OTHER_SOCKET: Final = re.compile(r"fpga\.intel\.com-.*\.sock|accelerator\.sock")
"""Of the public suite, by resource; of the b<>com plugin."""
_RESOURCES: Final = (f"{DOMAIN}/", UNIT_RESOURCE)
_LOG: Final = "its log: journalctl -u kubelet"
_NOT_LISTENING: Final = {
    errno.ENOENT: "missing",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ECONNREFUSED: "nothing listens on it",
}


def check_kubelet(node: Node) -> Iterator[Line]:
    """Whether the kubelet listens where plugins register."""
    folder = plugins_folder(node.options.kubelet_dir)
    start = "start the kubelet, or name its folder with --kubelet-dir"
    if not _is_folder(folder):
        yield failed(f"{folder} is not a directory", start)
        return
    path = folder / KUBELET_SOCKET
    match problem_of(path):
        case "":
            yield ok(f"it listens on {path}")
        case "missing":
            yield failed(f"{path} does not exist", start)
        case "denied":
            yield unseen(f"{path}: user {os.geteuid()} may not connect", AS_ROOT)
        case problem:
            yield failed(f"{path}: {problem}", f"restart the kubelet; {_LOG}")


def check_sockets(node: Node) -> Iterator[Line]:
    """Which plugins serve in the kubelet's folder."""
    folder = plugins_folder(node.options.kubelet_dir)
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is needed
    except FileNotFoundError:
        yield skipped(f"{folder} does not exist")
        return
    ours = [name for name in names if OUR_SOCKET.fullmatch(name) and is_alive(folder / name)]
    plugins = {name.split("-")[1] for name in ours}
    if len(plugins) > 1:
        yield failed(
            f"{len(plugins)} accelbind plugins serve here",
            "remove one: see kubectl get daemonset -A, and plugins that were started by hand",
        )
    for name in names:
        if _OTHER_SOCKET.fullmatch(name) and is_alive(folder / name):
            yield failed(
                f"{folder / name}: another FPGA plugin serves here",
                "remove it, and its operator too: docs/migration.md",
            )
    if not ours:
        yield warning(f"no accelbind plugin serves in {folder}", "start it: accelbind plugin")
    elif len(plugins) == 1:
        yield ok(f"{count(len(ours), 'socket')} of one plugin")


def check_checkpoint(node: Node) -> Iterator[Line]:
    """Whether the kubelet's allocations can be read."""
    path = checkpoint_file(node.options.kubelet_dir)
    try:
        entries = read_checkpoint(path)
    except KubeletError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            yield skipped(f"{path} does not exist: no container has had a device yet")
        elif isinstance(error.__cause__, PermissionError):
            yield unseen(str(error), AS_ROOT)
        else:
            yield failed(str(error), "keep a copy, and restart the kubelet, which rewrites it")
        return
    number = sum(entry.resource.startswith(_RESOURCES) for entry in entries)
    yield ok(f"{count(number, 'allocation')} in {path}")


def check_pod_resources(node: Node) -> Iterator[Line]:
    """Whether the kubelet reports who has which device."""
    path = pod_resources_socket(node.options.kubelet_dir)
    match problem_of(path):
        case "":
            try:
                pods = asyncio.run(active_pods(path, seconds=CONNECT_SECONDS * 2))
            except KubeletError as error:
                yield failed(str(error), f"restart the kubelet; {_LOG}")
                return
            held = [each for pod in pods for each in pod.held]
            number = sum(each.resource.startswith(_RESOURCES) for each in held)
            yield ok(f"{path} answers: {count(number, 'allocation')}")
        case "missing":
            yield failed(
                f"{path} does not exist",
                "start the kubelet; in a pod, mount the kubelet's --root-dir"
                " (components/kubelet-root)",
            )
        case "denied":
            yield unseen(f"{path}: user {os.geteuid()} may not connect", AS_ROOT)
        case problem:
            yield failed(f"{path}: {problem}", "restart the kubelet")


def check_pod_logs(node: Node) -> Iterator[Line]:
    """Whether pods can be found by the UID in their log folder."""
    path = node.options.pod_logs_dir
    try:
        number = len(pod_folders(path))
    except KubeletError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            yield ok(
                f"{path} doesn't exist: pods are found by their devices, except those in which only"
                " an init container has devices"
            )
        elif isinstance(error.__cause__, PermissionError):
            yield unseen(str(error), AS_ROOT)
        else:
            yield warning(str(error), "pods in which only an init container has devices need it")
        return
    yield ok(f"{count(number, 'pod')} in {path}")


def is_alive(path: Path) -> bool:
    """Whether a process listens on a socket."""
    return not problem_of(path)


def problem_of(path: Path) -> str:
    """Why nothing answers on a socket: `missing`, `denied` or a clause; empty if something does."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return "it is not a socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_SECONDS)
            probe.connect(str(path))
    except TimeoutError:
        return "it does not answer"
    except OSError as error:
        return _NOT_LISTENING.get(error.errno or 0) or str(error.strerror or error)
    return ""


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)  # is_dir would hide a missing permission
    except (FileNotFoundError, NotADirectoryError):
        return False
