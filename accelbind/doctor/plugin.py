"""What `accelbind doctor` asks the plugin that runs on a node."""

import contextlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from accelbind.doctor.kubelet import OUR_SOCKET, live_sockets
from accelbind.doctor.model import Line, Unseen, failed, ok, unseen, warning
from accelbind.doctor.node import Node
from accelbind.plain_port import NoAnswer
from services.kubelet.sockets import plugins_folder
from services.node.table import HEALTHY
from services.process.text import plain

_PERMISSIONS: Final = "accelbind_permission_missing"
_UNREACHABLE: Final = "the plugin does not answer: see node.plugin"


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


def check_devices(node: Node) -> Iterator[Line]:
    """Are all devices of the plugin healthy?"""
    try:
        table = node.table
    except NoAnswer as error:
        raise Unseen(_UNREACHABLE) from error
    for problem in table.problems:
        yield warning(plain(problem, 500), "see accelbind devices")
    for row in table.devices:
        if row.health != HEALTHY:
            why = "; ".join(reason.message for reason in row.reasons) or "no reason given"
            held = ", ".join(f"{each.namespace}/{each.pod}" for each in row.holders)
            by = f" (held by {held})" if held else ""
            yield failed(
                f"{row.device} of {row.resource or 'no resource'}{by}: {plain(why, 400)}",
                "see node.cards; no other pod gets it meanwhile",
            )
    healthy = sum(row.health == HEALTHY for row in table.devices)
    yield ok(f"{healthy} healthy, mode {plain(table.mode)}")


def check_permissions(node: Node) -> Iterator[Line]:
    """Does the plugin have all permissions?"""
    try:
        status, answer = node.plugin.get("/metrics")
    except NoAnswer as error:
        raise Unseen(_UNREACHABLE) from error
    try:
        families = [*text_string_to_metric_families(answer.decode(errors="replace"))]
    except ValueError:
        families = []
    if status != HTTPStatus.OK or not families:
        raise Unseen(f"{node.plugin}/metrics has no metrics ({status})")
    for family in families:
        for sample in family.samples if family.name == _PERMISSIONS else ():
            path, permission = sample.labels.get("path"), sample.labels.get("permission")
            yield failed(
                f"{path}: the plugin has no permission to {permission}",
                'the plugin\'s log ("permission missing") says how to give it',
            )


def _unreachable(node: Node, error: NoAnswer) -> Line:
    folder = plugins_folder(node.options.kubelet_dir)
    with contextlib.suppress(OSError):
        if live_sockets(folder, OUR_SOCKET):
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
