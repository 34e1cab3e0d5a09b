"""What `accelbind doctor` asks the plugin that runs on a node."""

import os
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from accelbind.doctor.kubelet import OUR_SOCKET, is_alive
from accelbind.doctor.model import Line, failed, ok, unseen, warning
from accelbind.doctor.node import Node
from accelbind.plain_port import NoAnswer
from services.kubelet.sockets import plugins_folder
from services.node.table import HEALTHY
from services.process.text import plain

_PERMISSIONS: Final = "accelbind_permission_missing"
_UNREACHABLE: Final = "the plugin does not answer: see node.plugin"


def check_plugin(node: Node) -> Iterator[Line]:
    """Liveness and readiness, with what they say."""
    where = node.plugin_address
    try:
        alive, text = _probe(node, "/healthz")
        if alive != HTTPStatus.OK:
            yield failed(f"{where}/healthz: {text}", "restart the plugin: its own sockets hang")
        status, text = _probe(node, "/readyz")
    except NoAnswer as error:
        yield _unreachable(node, error)
        return
    if status == HTTPStatus.OK:
        yield ok(f"{where}/readyz: {text}")
    else:
        yield failed(f"{where}/readyz: {text}", "see node.kubelet and the plugin's log")


def check_devices(node: Node) -> Iterator[Line]:
    """Devices that the plugin reports as unhealthy."""
    try:
        table = node.table
    except NoAnswer:
        yield unseen(_UNREACHABLE)
        return
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
    """Permissions that the plugin reports as missing."""
    try:
        status, text = node.query_plugin("/metrics")
    except NoAnswer:
        yield unseen(_UNREACHABLE)
        return
    if status != HTTPStatus.OK:
        yield unseen(f"{node.plugin_address}/metrics answers {status}")
        return
    try:
        families = [*text_string_to_metric_families(text.decode(errors="replace"))]
    except ValueError:
        yield unseen(f"the answer of {node.plugin_address}/metrics can't be parsed")
        return
    for family in families:
        for sample in family.samples if family.name == _PERMISSIONS else ():
            path, permission = sample.labels.get("path"), sample.labels.get("permission")
            yield failed(
                f"{path}: the plugin has no permission to {permission}",
                'the plugin\'s log ("permission missing") says how to give it',
            )


def _unreachable(node: Node, error: NoAnswer) -> Line:
    folder = plugins_folder(node.options.kubelet_dir)
    where = node.plugin_address
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        names = []
    if any(OUR_SOCKET.fullmatch(name) and is_alive(folder / name) for name in names):
        return unseen(
            f"a plugin serves in {folder}, but does not answer on {where}: {error}",
            "run the doctor in its pod: kubectl exec -n accelbind-system ds/accelbind-plugin --"
            " accelbind doctor; or give the pod's address as --metrics-host",
        )
    return failed(
        f"no plugin answers on {where} ({error}), and none serves in {folder}",
        "start it (manifests/overlays, or accelbind plugin); if it runs, check --metrics-port and"
        " --kubelet-dir",
    )


def _probe(node: Node, path: str) -> tuple[int, str]:
    status, text = node.query_plugin(path)
    lines = text.decode(errors="replace").strip().splitlines()
    return status, plain("; ".join(lines), 600)
