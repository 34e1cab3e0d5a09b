"""Checks of `accelbind doctor`: workloads, nodes, and pods that wait."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from accelbind.claim_objects import list_claim_objects, names_claims
from accelbind.doctor.cluster import Cluster, Json, full_name, name_of, part, read_targets
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, unseen, warning
from accelbind.doctor.webhooks import other_hooks
from accelbind.published import CLASSES, SLICES, Published, read_published
from accelbind.survey import read_index
from services.admission.findings import Code, add_advertised, check
from services.admission.patch import decode_note
from services.admission.requested import OWN
from services.mappings.accelerator import DEVICE_CLASS
from services.pods.pod import REQUESTED_ANNOTATION
from services.process.text import plain

_OTHER_PLUGINS: Final = ("intel-fpga-plugin", "accelerator-device-plugin", "fpgadeviceplugin")

PLUGIN_CONTAINER: Final = "plugin"
"""The container of the plugin's and the DRA driver's pods."""

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
    # Nodes are in one of several pools, and some pools are for nodes that come later.
    has_nodes = any(is_pool(item) and _wanted(kind, item) for kind, item in items)
    lines = [
        _workload_line(kind, item, namespace, may_be_empty=has_nodes and is_pool(item))
        for kind, item in items
    ]
    yield from lines or [skipped(f"nothing runs in namespace {namespace} (see --namespace)")]


def check_other_suites(cluster: Cluster) -> Iterator[Line]:
    """Are other FPGA suites removed?"""
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
            f"{label} changes FPGA pods too",
            "remove it (docs/migration.md): only one webhook can replace names",
        )


def read_nodes(cluster: Cluster) -> list[Json]:
    """The nodes, as far as checks need them. Raises as `Cluster.get`."""
    # Whole nodes have about 20 KB each.
    return cluster.items("/api/v1/nodes", _node_parts)


def read_offered(cluster: Cluster) -> Published:
    """The devices that nodes offer by DRA. Raises as `Cluster.get`."""
    return read_published(cluster.items(SLICES), cluster.items(CLASSES))


def is_pool(item: Json) -> bool:
    """Whether a workload is a DaemonSet of the plugin or of the DRA driver."""
    containers = part(item, "spec", "template", "spec").get("containers") or ()
    return any(each.get("name") == PLUGIN_CONTAINER for each in containers)


def _wanted(kind: str, item: Json) -> int:
    if kind == "DaemonSet":
        return int(part(item, "status").get("desiredNumberScheduled") or 0)
    return int(part(item, "spec").get("replicas", 1))


def _workload_line(kind: str, item: Json, namespace: str, *, may_be_empty: bool) -> Line:
    name, status, wanted = name_of(item), part(item, "status"), _wanted(kind, item)
    ready = status.get("numberReady" if kind == "DaemonSet" else "readyReplicas") or 0
    text = f"{kind} {name}: {ready} of {wanted} ready"
    if ready < wanted:
        return failed(text, f"kubectl describe {kind.lower()} -n {namespace} {name}")
    if not wanted and may_be_empty:
        return ok(f"{kind} {name}: no node is in this pool")
    if not wanted:
        return warning(text, "label a node for its selector, or scale it up")
    return ok(text)


def _node_parts(node: Json) -> Json:
    metadata, status = part(node, "metadata"), part(node, "status")
    return {
        "metadata": {name: metadata.get(name) for name in ("name", "annotations", "labels")},
        "spec": {"taints": part(node, "spec").get("taints")},
        "status": {name: status.get(name) for name in ("capacity", "allocatable")},
    }


def waiting_reasons(pod: Json) -> Iterator[str]:
    """Why containers of a pod wait, one clause each."""
    status = part(pod, "status")
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(key) or ():
            waiting = part(one, "state", "waiting")
            if waiting.get("reason"):
                yield f"{one.get('name')}: {waiting['reason']}: {waiting.get('message', '')}"


def check_claims(cluster: Cluster) -> Iterator[Line]:
    """Do names of claims have their templates, classes and devices?"""
    index = cluster.query(lambda client: read_index(client, [None]))
    if not names_claims(index):
        yield ok("no Accelerator stands for claims")
        return
    _, objects = cluster.query(lambda client: list_claim_objects(client, [None]))
    findings = check(index, policy=cluster.policy, claim_problem=objects.problem)
    for each in findings:
        if each.code == Code.CLAIMS:
            text = f"{each.subject} of namespace {plain(each.namespace)}: {each.text}"
            yield warning(text, "docs/accelerators.md, Names of claims")
    yield ok("Accelerators that stand for claims were checked")


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
    cluster.once(read_nodes)  # without them nothing is checked
    targets: frozenset[str] = frozenset()
    try:
        targets = cluster.once(read_targets)
    except Unseen as error:
        yield unseen(f"pods with what Accelerators stand for, unless the webhook noted it: {error}")
    pending = read_pods(cluster, targets)
    for _, line in waiting_lines(cluster, pending):
        yield line
    if not pending:
        yield ok("no pod that requests an accelerator is pending")


def waiting_lines(cluster: Cluster, pending: Iterable[Json]) -> Iterator[tuple[Json, Line]]:
    """Yield why pods of `read_pods` wait, each with its pod. Raises as `Cluster.get`."""
    totals: dict[str, int] = {}
    for node in cluster.once(read_nodes):
        add_advertised(totals, node, (), others=True)
    published = cluster.once(read_offered)
    for amounts in published.by_node.values():
        for key, number in amounts.items():
            totals[key] = totals.get(key, 0) + number
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
    waits = f"pod {full_name(pod)} waits for {plain(key)}"
    is_ours = key.startswith(cluster.resources)
    by_dra = sum(amounts.get(key, 0) for amounts in published.by_node.values())
    if by_dra and totals[key] == by_dra and key not in published.classes:
        return failed(
            f"{waits}, which nodes offer by DRA, but no DeviceClass has it",
            "make the classes: accelbind dra classes | kubectl apply -f -",
        )
    if totals.get(key):
        return warning(
            f"{waits}, of which nodes have {totals[key]}: {_scheduler_message(pod)}",
            "accelbind devices on their nodes shows who has them" if is_ours else _SCHEDULER,
        )
    if key in published.of_others or key.startswith(DEVICE_CLASS):
        return warning(f"{waits}, of a DeviceClass: {_scheduler_message(pod)}", _SCHEDULER)
    if key in totals:
        return failed(
            f"{waits}, of which no node has a healthy one",
            "run accelbind doctor on the nodes that know it" if is_ours else _OTHER_PLUGIN,
        )
    if cluster.policy.is_logical(key):
        return failed(
            f"{waits}, a name that no webhook has replaced",
            "fix cluster.webhooks, then delete the pod and create it again",
        )
    advice = "add a node with such a card, in the right mode"
    return failed(f"{waits}, which no node knows", advice if is_ours else _OTHER_PLUGIN)


def _starting_lines(pod: Json) -> Iterator[Line]:
    for reason in waiting_reasons(pod):
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
    keys: set[str] = set()
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        keys.update(part(container, "resources", "limits"))
    return sorted(keys)
