"""Devices as the Container Device Interface describes them, for runtimes that take them by name.

A runtime that is given the name `vendor/class=device` looks it up in the JSON files of its folders
(`/etc/cdi`, `/var/run/cdi`) and edits the container as the file says
(github.com/cncf-tags/container-device-interface, `SPEC.md`; what names may hold, `pkg/parser`).
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from services.devices.model import Device, DeviceNode
from services.devices.nodes import is_name
from services.process.errors import InvalidName
from services.process.json import UNREADABLE
from services.process.problem import Problem

CDI_VERSION = "0.5.0"  # the first one with `hostPath`
NOTE_VERSION = "0.6.0"  # the first one with `annotations`
NOTE = "accelbind.dev/claim-entry"
"""The annotation of a claim's file with the claim's entry, from which a lost one is restored."""
KIND = "intel.cdi.k8s.io/fpga"
"""Vendor and class, as the public plugin has them."""
DEVICE_KIND = "accelbind.dev/device"
"""That of devices of device types."""
# One for all devices of a kind, since a runtime refuses a name that two files define: a device that
# moves to another resource would be in both for a moment.
FILES = {KIND: "accelbind-fpga.json", DEVICE_KIND: "accelbind-device.json"}
"""Our file of each kind; other files of the folder are never touched."""
CLAIM_KIND = "accelbind.dev/claim"
"""That of what a DRA claim gives a container; each claim has a file of its own."""

_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class CdiFile:
    """The content of our file."""

    content: bytes = b""
    """Empty if there should be no file, since one without devices is invalid."""
    devices: tuple[str, ...] = ()
    """Ids of the devices in it."""
    problems: tuple[Problem, ...] = ()
    """What was left out, and why."""


def check_name(name: str) -> None:
    """Raise `InvalidName` if runtimes take no device with this name."""
    if not _DEVICE.fullmatch(name):
        raise InvalidName(
            f"{name!r:.200} is not a CDI device name: letters, digits and '_', '-', '.', ':'"
            " between them"
        )


@dataclass(frozen=True, slots=True)
class CdiHook:
    """A program that runtimes start, on the host, before a container with one of the devices."""

    path: str
    socket: str
    """Its first argument; the device's id is the second."""


def describe(
    devices: Iterable[Device],
    *,
    kind: str = KIND,
    host_root: str = "/",
    hook: CdiHook | None = None,
) -> CdiFile:
    """The file about a node's devices of a kind: the same bytes in whatever order they come.

    `host_root` is the folder below which the host's `dev/` is, as the host sees it. A device that
    runtimes wouldn't take is left out and reported.
    """
    entries: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    # Health plays no part: a container that has a device restarts with it.
    for device in devices:
        if not device.nodes or not device.cdi.startswith(f"{kind}="):
            continue
        # A runtime refuses a file as a whole for one bad device in it.
        problem = _problem(device, entries)
        if problem:
            problems.append(problem)
            continue
        edits: dict[str, Any] = {"deviceNodes": [_node(node, host_root) for node in device.nodes]}
        if hook is not None:
            edits["hooks"] = [_hook(hook, device.id)]
        entries[device.id] = {"name": _name(device), "containerEdits": edits}
    names = tuple(sorted(entries))
    if not names:
        return CdiFile(problems=tuple(problems))
    content = _file(kind, [entries[name] for name in names])
    return CdiFile(content, names, tuple(problems))


def claim_file(uid: str) -> str:
    """The name of the file of a claim."""
    return f"accelbind-claim-{uid}.json"


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """Nodes, variables and files that a container gets with a device of a claim."""

    name: str
    """Unique among all claims that there ever are, as runtimes may remember what a name means."""
    nodes: tuple[DeviceNode, ...] = ()
    envs: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """Files of the host that it can read: their paths on the host and in the container."""

    @property
    def cdi(self) -> str:
        """Its name for runtimes; empty if there is nothing to edit, which is invalid."""
        return f"{CLAIM_KIND}={self.name}" if self.nodes or self.envs or self.files else ""


def describe_claim(
    devices: Iterable[ClaimDevice], *, host_root: str = "/", note: str = ""
) -> bytes:
    """The file of a claim; empty if there is nothing to edit. A note is for its writer.

    Raises:
        InvalidName: A name or node is none that runtimes take.
    """
    entries = []
    for device in devices:
        check_name(device.name)
        bad = [node for node in device.nodes if not is_name(node.name)]
        if bad:
            raise InvalidName(
                f"{device.name} has a node that no container can have: {bad[0].name!r:.200}"
            )
        edits: dict[str, Any] = {}
        if device.nodes:
            edits["deviceNodes"] = [_node(node, host_root) for node in device.nodes]
        if device.envs:
            edits["env"] = [f"{name}={value}" for name, value in device.envs]
        if device.files:
            edits["mounts"] = [_mount(*paths) for paths in device.files]
        if device.cdi:
            entries.append({"name": device.name, "containerEdits": edits})
    if not entries:
        return b""
    if not note:
        return _file(CLAIM_KIND, entries)
    return _file(CLAIM_KIND, entries, cdiVersion=NOTE_VERSION, annotations={NOTE: note})


class NamedNode(msgspec.Struct, rename="camel"):
    """A device node in the file of a claim."""

    path: str
    host_path: str = ""

    @property
    def on_host(self) -> str:
        """Its path on the host."""
        return self.host_path or self.path

    def place(self, host_root: str) -> str:
        """Its path below the host's `/dev`; in files of another root, that in the container."""
        dev = f"{host_root.rstrip('/')}/dev/"
        is_below = self.host_path.startswith(dev)
        return self.host_path.removeprefix(dev) if is_below else self.path.removeprefix("/dev/")


class _Edits(msgspec.Struct, rename="camel"):
    device_nodes: tuple[NamedNode, ...] = ()


class _Entry(msgspec.Struct, rename="camel"):
    container_edits: _Edits


class ClaimFile(msgspec.Struct):
    """What we read again of the file of a claim."""

    devices: tuple[_Entry, ...] = ()
    annotations: dict[str, str] = {}

    @property
    def nodes(self) -> tuple[NamedNode, ...]:
        """The nodes that it names."""
        return tuple(node for each in self.devices for node in each.container_edits.device_nodes)

    @property
    def note(self) -> str:
        """The note of its writer."""
        return self.annotations.get(NOTE, "")


def read_claim_file(content: bytes | str) -> ClaimFile | None:
    """The file of a claim; None if it is none that a runtime could use."""
    try:
        return msgspec.json.decode(content, type=ClaimFile)
    except UNREADABLE:
        return None


def _file(kind: str, entries: list[dict[str, Any]], **more: object) -> bytes:
    content = {"cdiVersion": CDI_VERSION, "kind": kind, "devices": entries} | more
    return f"{json.dumps(content, indent=1)}\n".encode()


def _node(node: DeviceNode, host_root: str) -> dict[str, str]:
    return {
        "path": node.container_path,
        "hostPath": node.host_path(host_root),
        "permissions": node.permissions,
    }


def _mount(on_host: str, in_container: str) -> dict[str, Any]:
    options = ["ro", "bind", "nosuid", "nodev", "noexec"]
    return {"hostPath": on_host, "containerPath": in_container, "options": options}


def _problem(device: Device, known: Iterable[str]) -> Problem | None:
    """Why a device can't be in a file, if it can't."""
    if device.id in known:
        return Problem("cdi-duplicate", f"two devices are called {device.id}")
    try:
        check_name(_name(device))
    except InvalidName as error:
        return Problem("cdi-name", str(error))
    for node in device.nodes:
        if not is_name(node.name):
            text = f"{device.id} has a node that no container can have: {node.name!r:.200}"
            return Problem("cdi-node", text)
    return None


def _name(device: Device) -> str:
    return device.cdi.partition("=")[2]


def _hook(hook: CdiHook, device: str) -> dict[str, Any]:
    name = hook.path.rpartition("/")[2]
    return {
        "hookName": "createRuntime",  # once the container's namespaces exist
        "path": hook.path,
        "args": [name, hook.socket, device],
    }
