"""Checks of `accelbind doctor`: workloads, nodes, and pods that wait."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from accelbind.cluster import Json, part
from accelbind.doctor.cluster import Cluster, full_name, name_of, read_targets
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, unseen, warning
from accelbind.doctor.webhooks import other_hooks
from accelbind.dra.objects import CLASSES, SLICES, Published, read_published
from services.admission.findings import add_advertised
from services.admission.patch import decode_note
from services.admission.requested import OWN
from services.mappings.accelerator import DEVICE_CLASS
from services.pods.pod import REQUESTED_ANNOTATION
from services.process.text import plain

_OTHER_PLUGINS: Final = ("intel-fpga-plugin", "accelerator-device-plugin", "fpgadeviceplugin")

PENDING: Final = "Pending"
_START_PROBLEMS: Final = ("PreStartContainer", "Allocate failed", "device plugin")
_SCHEDULER: Final = "kubectl describe nodes shows what is allocated; wait for it, or add nodes"
_OTHER_PLUGIN: Final = "is the plugin that offers it running? accelbind check mappings finds typos"


def check_workloads(cluster: Cluster) -> Iterator[Line]:
    """Do accelbind's workloads run?"""
    namespace = cluster.namespace
    items = [
        (kind, item)
        for kind in ("Deployment", "DaemonSet")
        for item in cluster.items(f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s")
    ]
    if not items:
        yield skipped(f"nothing runs in namespace {namespace} (see --namespace)")
    for kind, item in items:
        name, status = name_of(item), part(item, "status")
        if kind == "DaemonSet":
            ready, wanted = status.get("numberReady"), status.get("desiredNumberScheduled")
        else:
            ready, wanted = status.get("readyReplicas"), part(item, "spec").get("replicas", 1)
        ready, wanted = ready or 0, wanted or 0
        line = ok if ready >= wanted else failed
        todo = "" if ready >= wanted else f"kubectl describe {kind.lower()} -n {namespace} {name}"
        yield line(f"{kind} {name}: {ready} of {wanted} ready", todo)


def check_other_suites(cluster: Cluster) -> Iterator[Line]:
    """Are other suites for the same devices removed?"""
    for item in cluster.items("/apis/deviceplugin.intel.com/v1/fpgadeviceplugins"):
        name = name_of(item)
        yield failed(
            f"FpgaDevicePlugin {name}: its operator re-creates the DaemonSet",
            f"kubectl delete fpgadeviceplugin {name}, in the order of docs/migration.md",
        )
    for item in cluster.items("/apis/apps/v1/daemonsets"):
        if any(word in name_of(item) for word in _OTHER_PLUGINS):
            yield failed(
                f"DaemonSet {full_name(item)} offers the same devices",
                "remove it before accelbind serves its nodes: docs/migration.md",
            )
    for label in other_hooks(cluster):
        yield failed(
            f"{label} changes the same pods too",
            "remove it (docs/migration.md): only one webhook can replace names",
        )


# Pods --------------------------------------------------------------------------------


def read_pods(
    cluster: Cluster, targets: frozenset[str] = frozenset(), phases: tuple[str, ...] = (PENDING,)
) -> list[Json]:
    """The pods of some phases that ask for an accelerator; their resources are in `requested`.

    `targets` are the resources that names of accelerators stand for.
    """

    def keep(pod: Json) -> Json | None:
        requested = [
            key for key in _limits(pod) if key in targets or key.startswith(cluster.resources)
        ]
        wanted = part(pod, "status").get("phase") in phases
        return pod | {"requested": requested} if wanted and (requested or noted(pod)) else None

    return cluster.items("/api/v1/pods", keep)


def check_pending(cluster: Cluster) -> Iterator[Line]:
    """Is no pod stuck that requests an accelerator?"""
    targets: frozenset[str] = frozenset()
    try:
        targets = read_targets(cluster)
    except Unseen as error:
        yield unseen(f"pods with what Accelerators stand for, unless the webhook noted it: {error}")
    pending = read_pods(cluster, targets)
    for _, line in waiting_lines(cluster, pending):
        yield line
    if not pending:
        yield ok("no pod that requests an accelerator is pending")


def waiting_lines(cluster: Cluster, pending: Iterable[Json]) -> Iterator[tuple[Json, Line]]:
    """Yield why pods of `read_pods` wait, each with its pod. Raises as `Cluster.get`."""
    totals = Counter[str]()
    for node in cluster.nodes:
        add_advertised(totals, node, ())
    published = read_published(cluster.items(SLICES), cluster.items(CLASSES))
    totals.update(published.amounts)
    for pod in pending:
        if part(pod, "spec").get("nodeName"):
            yield from ((pod, line) for line in _starting_lines(pod))
            continue
        for key in pod["requested"]:
            yield pod, _unscheduled_line(cluster, pod, key, totals, published)
        if not pod["requested"]:
            waits = f"pod {full_name(pod)} waits for {noted(pod)}: {_scheduler_message(pod)}"
            yield pod, warning(waits, "accelbind explain shows what the name stands for")


def _unscheduled_line(
    cluster: Cluster, pod: Json, key: str, totals: dict[str, int], published: Published
) -> Line:
    line, todo = failed, _OTHER_PLUGIN
    is_ours, number = key.startswith(cluster.resources), totals.get(key, 0)
    if number and number == published.amounts.get(key, 0) and key not in published.classes:
        text = "which nodes offer by DRA, but no DeviceClass has it"
        todo = "make the classes: accelbind dra classes | kubectl apply -f -"
    elif number:
        line, text = warning, f"of which nodes have {number}: {_scheduler_message(pod)}"
        todo = "accelbind devices on their nodes shows who has them" if is_ours else _SCHEDULER
    elif key in published.of_others or key.startswith(DEVICE_CLASS):
        line, text = warning, f"of a DeviceClass: {_scheduler_message(pod)}"
        todo = _SCHEDULER
    elif key in totals:
        text = "of which no node has a healthy one"
        if is_ours:
            todo = "run accelbind doctor on the nodes that know it"
    elif cluster.policy.is_logical(key):
        text = "a name that no webhook has replaced"
        todo = "fix cluster.webhooks, then delete the pod and create it again"
    else:
        text = "which no node knows"
        if is_ours:
            todo = "add a node with such a card, in the right mode"
    return line(f"pod {full_name(pod)} waits for {plain(key)}, {text}", todo)


def _starting_lines(pod: Json) -> Iterator[Line]:
    status = part(pod, "status")
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(key) or ():
            waiting = part(one, "state", "waiting")
            reason = f"{one.get('name')}: {waiting.get('reason')}: {waiting.get('message')}"
            if any(word in reason for word in _START_PROBLEMS):  # others are not about a device
                yield failed(
                    f"pod {full_name(pod)} does not start: {plain(reason, 600)}",
                    "run accelbind doctor on its node; see the plugin's log",
                )


def _scheduler_message(pod: Json) -> str:
    for one in part(pod, "status").get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") != "True":
            return plain(str(one.get("message") or one.get("reason")), 300)
    return "no message from the scheduler yet"


def noted(pod: Json) -> str:
    """The names that the webhook has replaced, with their units; empty if there are none."""
    text = str(part(pod, "metadata", "annotations").get(REQUESTED_ANNOTATION) or "")
    units = Counter[str]()
    for names in decode_note(text).values():
        units.update({name: one for name, one in names.items() if not name.startswith(OWN)})
    return plain(", ".join(f"{name}: {number}" for name, number in units.items()) or text, 200)


def _limits(pod: Json) -> list[str]:
    spec = part(pod, "spec")
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return sorted({key for each in containers for key in part(each, "resources", "limits")})
