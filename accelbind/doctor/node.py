"""Checks of `accelbind doctor`: a node's devices and plugin, and what VFIO needs."""

import os
import re
import resource
from collections.abc import Collection, Iterator
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Final

from accelbind.devices.source import DeviceSource, NoAnswer, PlainPort, served_folder
from accelbind.doctor.model import AS_ROOT, Line, failed, ok, skipped, unseen, warning
from plugin.settings import PluginSettings
from services.devices.ofs import IN_USE
from services.devices.reasons import remedy
from services.devices.types.build import NOT_MATCHED
from services.devices.types.misses import MATCHES_NOTHING
from services.kube.access import find_access
from services.kubelet.sockets import plugins_folder
from services.node.table import Row, Table
from services.process.text import count, plain

_SHOWN: Final = "accelbind devices shows the devices that are known"
_MISSED: Final = "correct its match; if this node has no such device, nothing"

_GUIDE: Final = "docs/administrators.md, Locked memory"
_RUNTIMES: Final = frozenset({"containerd", "crio"})
_CONFIGURATIONS: Final = (
    "etc/containerd/config.toml",
    "etc/containerd/conf.d/*.toml",
    "etc/crio/crio.conf",
    "etc/crio/crio.conf.d/*",
)
_OWNERSHIP: Final = "device_ownership_from_security_context"
_IS_OWNERSHIP_ON: Final = re.compile(rf"^\s*{_OWNERSHIP}\s*=\s*true\b", re.MULTILINE)
_LOCKED: Final = re.compile(r"^Max locked memory\s+(\S+)", re.MULTILINE)


class Node:
    """A node, and the names of the settings that were given for it."""

    def __init__(self, options: PluginSettings, given: Collection[str] = ()) -> None:
        self.options = options
        self.plugin = PlainPort.of(options)
        self._given = given

    @cached_property
    def table(self) -> Table:
        """The devices: those of the plugin, or without one those that files show."""
        source = DeviceSource(self.options, self._given, files=True)
        if "device_types" in self._given:  # a running plugin has its own
            return source.read()
        try:
            return source.from_plugin()
        except NoAnswer:  # another check says why
            return source.read()


def check_devices(node: Node) -> Iterator[Line]:
    """Are drivers and device types loaded, and all devices healthy?"""
    table, healthy, shown = node.table, 0, set[str]()
    for row in table.devices:
        healthy += not row.reasons
        where = f"{row.device} of type {row.type}" if row.type else row.card or row.device
        for problem in row.reasons:
            text = f"{where}: {plain(problem.text, 400)}"
            # In use is as it should be; a card's problem is one of each of its devices.
            if problem.code != IN_USE and text not in shown:
                shown.add(text)
                # Of near misses, some are meant.
                line = warning if problem.code == NOT_MATCHED else failed
                yield _unless_denied(line(text, remedy(problem.code)))
    for note in table.problems:
        line = warning if table.devices else failed
        todo = _MISSED if MATCHES_NOTHING in note else _SHOWN
        yield _unless_denied(line(plain(note, 600), todo))
    yield ok(count(healthy, "healthy device"))


def _unless_denied(line: Line) -> Line:
    return unseen(line.what, AS_ROOT) if "Permission denied" in line.what else line


def check_plugin(node: Node) -> Iterator[Line]:
    """Is the plugin alive, and registered with the kubelet?"""
    for path, todo in (
        ("/healthz", "restart the plugin: its own sockets hang"),
        ("/readyz", "see the plugin's log, and journalctl -u kubelet"),
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
    # In a pod the plugin's port is at the pod's address.
    if served := served_folder(node.options.kubelet_dir):
        return unseen(
            f"a plugin serves in {served}, but does not answer on {node.plugin}: {error}",
            "run the doctor in its pod: kubectl exec -n accelbind-system ds/accelbind-plugin"
            " -- accelbind doctor; or give the pod's address as --metrics-host",
        )
    folder = plugins_folder(node.options.kubelet_dir)
    return failed(
        f"no plugin answers on {node.plugin} ({error}), and none serves in {folder}",
        "start it (manifests/overlays, or accelbind plugin); if it runs, check --metrics-port and"
        " --kubelet-dir",
    )


def check_vfio(node: Node) -> Iterator[Line]:
    """Can containers use devices through VFIO?"""
    root, rows = node.options.root, node.table.devices
    if not any("vfio" in each for row in rows for each in (*row.nodes, *_reasons(row))):
        yield skipped("no device here is an OFS card's, or of a device type with nodes of VFIO")
        return
    yield _locked_memory(root / "proc")
    yield _ownership(root)


def _reasons(row: Row) -> list[str]:
    # A node that is missing is in the text only; a near miss may name the driver.
    return [each.text if each.code == "node-missing" else each.code for each in row.reasons]


def _locked_memory(proc: Path) -> Line:
    # Containers inherit the limit from the runtime.
    limit = _limit_of_runtime(proc)
    if limit is None and find_access() is not None:  # in a pod, which has it from its runtime too
        own = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        limit = "unlimited" if own == resource.RLIM_INFINITY else str(own)
    if limit is None:
        return unseen(f"no container runtime is in {proc}: its memlock limit is unknown")
    if limit == "unlimited":
        return ok("containers may lock any amount of memory")
    text = f"containers may lock {limit} bytes of memory, and DMA through VFIO locks what it maps"
    return warning(text, f"raise the memlock limit of the container runtime: {_GUIDE}")


def _limit_of_runtime(proc: Path) -> str | None:
    for name in proc.glob("[0-9]*/comm"):
        try:
            if name.read_text().strip() in _RUNTIMES:
                match = _LOCKED.search(name.with_name("limits").read_text())
                return match[1] if match else None
        except OSError:  # it has ended
            continue
    return None


def _ownership(root: Path) -> Line:
    # Whether the runtime gives device nodes to the container's user.
    files = [path for each in _CONFIGURATIONS for path in sorted(root.glob(each))]
    try:
        texts = [path.read_text(errors="replace") for path in files]
    except OSError as error:
        return unseen(f"{error.filename} can't be read by user {os.geteuid()}", AS_ROOT)
    if any(map(_IS_OWNERSHIP_ON.search, texts)):
        return ok(f"{_OWNERSHIP} is on")
    if not files:
        text = f"no configuration of containerd or CRI-O is below {root}: {_OWNERSHIP} is unknown"
        return unseen(text, "run the doctor on the node, not in a pod")
    return warning(
        f"{_OWNERSHIP} is not on: programs that do not run as root can't open device nodes",
        "set it in the configuration of the runtime: docs/administrators.md",
    )
