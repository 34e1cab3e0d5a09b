"""What `accelbind doctor` checks about workloads and nodes: ours, and those of other suites."""

from collections.abc import Iterator
from typing import Final

from accelbind.doctor.cluster import Cluster, Json, metadata, name_of
from accelbind.doctor.model import Line, failed, ok, skipped, warning
from accelbind.output import count
from services.admission.findings import add_advertised
from services.devices.model import PluginMode
from services.names import UNIT_RESOURCE
from services.process.text import plain

MODE_ANNOTATION: Final = "fpga.intel.com/device-plugin-mode"
_MODES: Final = (PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL)
_OTHER_PLUGINS: Final = ("intel-fpga-plugin", "accelerator-device-plugin", "fpgadeviceplugin")


def check_workloads(cluster: Cluster) -> Iterator[Line]:
    """Deployments and DaemonSets of accelbind, and why their pods are not ready."""
    namespace = cluster.namespace
    found = False
    for kind, plural in (("Deployment", "deployments"), ("DaemonSet", "daemonsets")):
        for item in cluster.items(f"/apis/apps/v1/namespaces/{namespace}/{plural}"):
            found = True
            yield _workload_line(kind, item, namespace)
    for pod in cluster.items(f"/api/v1/namespaces/{namespace}/pods", keep=_unless_ready):
        found = True
        yield _pod_line(pod)
    if not found:
        yield skipped(f"nothing runs in namespace {namespace} (see --namespace)")


def check_other_suites(cluster: Cluster) -> Iterator[Line]:
    """Remains of the suites that accelbind replaces."""
    for item in cluster.items("/apis/deviceplugin.intel.com/v1/fpgadeviceplugins"):
        name = name_of(item)
        yield failed(
            f"FpgaDevicePlugin {name}: its operator re-creates the DaemonSet",
            f"kubectl delete fpgadeviceplugin {name}, in the order of docs/migration.md",
        )
    for item in cluster.items("/apis/apps/v1/daemonsets"):
        name, namespace = name_of(item), plain(str(metadata(item).get("namespace")))
        if any(word in name for word in _OTHER_PLUGINS):
            owned = " (its operator re-creates it)" if metadata(item).get("ownerReferences") else ""
            yield failed(
                f"DaemonSet {namespace}/{name} offers the same devices{owned}",
                "remove it before accelbind serves its nodes: docs/migration.md",
            )


def read_nodes(cluster: Cluster) -> list[Json]:
    """The nodes, as far as checks need them. Raises as `Cluster.get`."""
    return cluster.items("/api/v1/nodes", keep=_node_parts)


def check_nodes(cluster: Cluster) -> Iterator[Line]:
    """What nodes offer of our domains."""
    offering = 0
    nodes = cluster.once(read_nodes)
    for node in nodes:
        name = name_of(node)
        mode = (metadata(node).get("annotations") or {}).get(MODE_ANNOTATION)
        if mode is not None and mode not in _MODES:
            yield failed(
                f"node {name}: annotation {MODE_ANNOTATION}={plain(str(mode))} is not a mode",
                f"kubectl annotate node {name} --overwrite {MODE_ANNOTATION}=af",
            )
        amounts = add_advertised({}, node, (*cluster.prefixes, UNIT_RESOURCE))
        gone = sorted(resource for resource, number in amounts.items() if not number)
        if gone:
            yield warning(
                f"node {name} knows {', '.join(map(plain, gone))}, but has no device of it",
                f"run accelbind doctor on {name}; ignore a resource that was removed: the kubelet"
                " keeps its name",
            )
        offering += any(amounts.values())
    if offering:
        yield ok(f"{offering} node{' offers' if offering == 1 else 's offer'} accelerators")
    else:
        yield failed(
            f"none of {count(len(nodes), 'node')} offers an accelerator",
            "run accelbind doctor on a node with cards; kubectl get pods -o wide -n"
            f" {cluster.namespace} shows where plugins run; or --skip cluster.nodes if such nodes"
            " come only on demand",
        )


def _workload_line(kind: str, item: Json, namespace: str) -> Line:
    name, status = name_of(item), item.get("status") or {}
    if kind == "DaemonSet":
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    else:
        wanted = (item.get("spec") or {}).get("replicas", 1)
        ready = status.get("readyReplicas", 0)
    text = f"{kind} {name}: {ready} of {wanted} ready"
    if ready < wanted:
        return failed(text, f"kubectl describe {kind.lower()} -n {namespace} {name}")
    if not wanted:
        todo = "label a node for its selector" if kind == "DaemonSet" else "scale it up"
        return warning(text, todo)
    return ok(text)


def _node_parts(node: Json) -> Json:
    status = node.get("status") or {}
    return {
        "metadata": {name: metadata(node).get(name) for name in ("name", "annotations", "labels")},
        "spec": {"taints": (node.get("spec") or {}).get("taints")},
        "status": {name: status.get(name) for name in ("capacity", "allocatable")},
    }


def _unless_ready(pod: Json) -> Json | None:
    status = pod.get("status") or {}
    over = status.get("phase") == "Succeeded" or metadata(pod).get("deletionTimestamp")
    ready = any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )
    return None if over or ready else pod


def _pod_line(pod: Json) -> Line:
    status = pod.get("status") or {}
    namespace, name = plain(str(metadata(pod).get("namespace"))), name_of(pod)
    reasons = [*waiting_reasons(pod)] or [
        str(one.get("message"))
        for one in status.get("conditions") or ()
        if one.get("status") != "True" and one.get("message")
    ]
    why = plain("; ".join(reasons), 500) or f"phase {status.get('phase')}"
    return failed(
        f"pod {namespace}/{name} is not ready: {why}",
        f"kubectl describe pod -n {namespace} {name}; kubectl logs -n {namespace} {name}",
    )


def waiting_reasons(pod: Json) -> Iterator[str]:
    """Why containers of a pod wait, one clause each."""
    status = pod.get("status") or {}
    for part in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(part) or ():
            state = (one.get("state") or {}).get("waiting") or {}
            if state.get("reason"):
                yield f"{one.get('name')}: {state['reason']}: {state.get('message', '')}"
