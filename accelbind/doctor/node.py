"""Checks of `accelbind doctor`: a node's devices and plugin."""

from collections.abc import Collection, Iterator
from functools import cached_property
from http import HTTPStatus
from typing import Final

from accelbind.devices.source import DeviceSource, NoAnswer, PlainPort, served_folder
from accelbind.doctor.model import AS_ROOT, Line, failed, ok, unseen, warning
from plugin.settings import PluginSettings
from services.devices.ofs import IN_USE
from services.devices.reasons import remedy
from services.devices.types.build import NOT_MATCHED
from services.devices.types.misses import MATCHES_NOTHING
from services.kubelet.sockets import plugins_folder
from services.node.table import Table
from services.process.text import count, plain

_SHOWN: Final = "accelbind devices shows the devices that are known"
_MISSED: Final = "correct its match; if this node has no such device, nothing"


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
