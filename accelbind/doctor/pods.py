"""What `accelbind doctor` checks about mappings, and about pods that wait or have failed."""

from collections.abc import Iterator
from typing import Final

from accelbind.doctor.cluster import Cluster, Json, full_name, part
from accelbind.doctor.model import Line, failed, ok, unseen, warning
from accelbind.doctor.workloads import read_nodes, waiting_reasons
from accelbind.survey import survey
from services.admission.findings import Code, add_advertised, check
from services.names import UNIT_RESOURCE, is_physical
from services.process.text import plain

_TODO: Final = {
    Code.INVALID: "fix or delete the mapping; kubectl explain af.spec shows what is valid",
    Code.CLASH: "rename one of them",
    Code.UNMAPPED: "map the name in that namespace, or fix the request",
    Code.NEVER_ADVERTISED: "nothing, if such nodes come and go; else see cluster.nodes, and delete"
    " mappings of cards that are gone",
    Code.DANGLING: "run accelbind doctor on the node that knows it",
    Code.DUPLICATE: "annotate those that should go: accelbind.dev/deprecated",
    Code.DEPRECATED: "use the other name in the next version of the pod",
}
_GROUPS: Final = {
    Code.NEVER_ADVERTISED: "mappings have a resource that no node serves",
    Code.DANGLING: "mappings have a resource of which no node has a device now",
    Code.DUPLICATE: "mappings stand for what another name of their namespace stands for",
    Code.DEPRECATED: "pods or workloads ask for a deprecated name",
}
"""Findings that are no faults, and how several are summed up. A pod that waits is a fault."""
_START_PROBLEMS: Final = ("PreStartContainer", "Allocate failed", "device plugin")


def check_mappings(cluster: Cluster) -> Iterator[Line]:
    """Are all mappings valid, and served by nodes?"""
    found = cluster.query(lambda client: survey(client, cluster.prefixes))
    for each in check(found.index, advertised=found.advertised, uses=found.uses):
        name = "/".join(filter(None, (plain(each.namespace), each.name)))
        text = f"{each.code.value}: {name}: {plain(each.message, 500)}"
        if each.code in _GROUPS:
            yield warning(text, _TODO[each.code], _GROUPS[each.code])
        else:
            yield failed(text, _TODO[each.code])
    yield from map(unseen, found.missing)
    yield ok(f"mappings: {len(found.index)}, namespaces: {len(found.index.namespaces)}")


def read_pods(cluster: Cluster) -> list[Json]:
    """The pods of all namespaces that wait or have failed and ask for our resources.

    Raises as `Cluster.get`. What they ask for is in `requested`.
    """

    def keep(pod: Json) -> Json | None:
        requested = _requested(pod, cluster.prefixes)
        is_stuck = part(pod, "status").get("phase") in {"Pending", "Failed"}
        return pod | {"requested": requested} if requested and is_stuck else None

    return cluster.items("/api/v1/pods", keep)


def check_pending(cluster: Cluster) -> Iterator[Line]:
    """No FPGA pod is stuck."""
    totals: dict[str, int] = {}
    for node in cluster.once(read_nodes):
        add_advertised(totals, node, (*cluster.prefixes, UNIT_RESOURCE))
    pending = [pod for pod in cluster.once(read_pods) if pod["status"]["phase"] == "Pending"]
    for pod in pending:
        if part(pod, "spec").get("nodeName"):
            yield from _starting_lines(pod)
        else:
            yield from (_unscheduled_line(pod, key, totals) for key in pod["requested"])
    if not pending:
        yield ok("no pod with our resources is pending")


def check_failed(cluster: Cluster) -> Iterator[Line]:
    """No pod failed because of its device."""
    for pod in cluster.once(read_pods):
        status = pod["status"]
        if status["phase"] == "Failed" and status.get("reason") == "UnexpectedAdmissionError":
            why = plain(str(status.get("message")), 500)
            yield warning(
                f"pod {full_name(pod)} has failed for good: {why}",
                "delete it, and create it again unless its controller has done so",
            )


def _unscheduled_line(pod: Json, key: str, totals: dict[str, int]) -> Line:
    name = key.partition("/")[2]
    waits = f"pod {full_name(pod)} waits for {plain(key)}"
    if totals.get(name):
        return warning(
            f"{waits}, of which nodes have {totals[name]}: {_scheduler_message(pod)}",
            "accelbind devices on their nodes shows who has them",
        )
    if name in totals:
        return failed(
            f"{waits}, of which no node has a healthy one",
            "run accelbind doctor on the nodes that know it",
        )
    if not is_physical(name) and key != UNIT_RESOURCE:
        return failed(
            f"{waits}, a name that no webhook has replaced",
            "fix cluster.webhooks, then delete the pod and create it again",
        )
    return failed(f"{waits}, which no node knows", "add a node with such a card, in the right mode")


def _starting_lines(pod: Json) -> Iterator[Line]:
    """Why a pod that has its node does not start, where that is about a device."""
    for reason in waiting_reasons(pod):
        if any(word in reason for word in _START_PROBLEMS):
            yield failed(
                f"pod {full_name(pod)} does not start: {plain(reason, 600)}",
                "run accelbind doctor on its node; see the plugin's log",
            )


def _scheduler_message(pod: Json) -> str:
    for one in part(pod, "status").get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") != "True":
            return plain(str(one.get("message") or one.get("reason")), 300)
    return "no message from the scheduler yet"


def _requested(pod: Json, prefixes: tuple[str, ...]) -> list[str]:
    """The resources of our domains that a pod's containers ask for."""
    spec = part(pod, "spec")
    keys: set[str] = set()
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        limits = part(container, "resources", "limits")
        keys.update(key for key in limits if key.startswith(prefixes) or key == UNIT_RESOURCE)
    return sorted(keys)
