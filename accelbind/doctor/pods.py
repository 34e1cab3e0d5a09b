"""What `accelbind doctor` finds in mappings and pods: what can't be used, and who waits in vain."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from accelbind.doctor.cluster import Cluster, waiting
from accelbind.doctor.model import Check, Line, failed, ok, unseen, warning
from accelbind.survey import survey
from services.admission.findings import Code, add_advertised, check
from services.names import UNIT_RESOURCE, is_physical
from services.process.text import plain

Json: TypeAlias = dict[str, Any]

_TODO: Final = {
    Code.INVALID: "mend or delete the mapping; kubectl explain af.spec tells what it takes",
    Code.CLASH: "rename one of them",
    Code.UNMAPPED: "map the name in that namespace, or correct the one who asks",
    Code.NEVER_ADVERTISED: "nothing, if nodes with it come and go or are in another mode; else see"
    " cluster.nodes, and delete a mapping that is for no card any more",
    Code.DANGLING: "accelbind doctor on the node that knows it",
    Code.DUPLICATE: "annotate those that should go: accelbind.dev/deprecated",
    Code.DEPRECATED: "use the other name in the next version of who asks",
}
_MILD: Final = frozenset({Code.NEVER_ADVERTISED, Code.DANGLING, Code.DUPLICATE, Code.DEPRECATED})
"""Codes that are no fault by themselves: a pod that waits for it is, and `pending` tells of it."""
_START: Final = ("PreStartContainer", "Allocate failed", "device plugin")
_WHERE_NEXT: Final = "accelbind doctor on its node; the plugin's log has the whole story"


@dataclass(slots=True)
class Pods:
    """Mappings and pods of a cluster.

    Args:
        cluster: The cluster.
    """

    cluster: Cluster

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        return [
            Check("cluster.mappings", "Can all mappings be used, and do nodes fit?", self.mappings),
            Check("cluster.pending-pods", "Does no pod wait in vain?", self.pending),
            Check("cluster.failed-pods", "Has no pod failed for its device?", self.ended),
        ]

    def mappings(self) -> Iterator[Line]:
        """What `accelbind check mappings` finds."""
        prefixes = self.cluster.prefixes
        self.cluster.reached()
        seen = self.cluster.ask(lambda client: survey(client, prefixes))
        for found in check(seen.index, advertised=seen.advertised, uses=seen.wishes):
            name = "/".join(filter(None, (plain(found.namespace), found.name)))
            told = f"{found.code.value}: {name}: {plain(found.message, 500)}"
            yield (warning if found.code in _MILD else failed)(told, _TODO[found.code])
        yield from (unseen(what) for what in seen.missing)
        yield ok(f"mappings: {len(seen.index)}, namespaces: {len(seen.index.namespaces)}")

    def pending(self) -> Iterator[Line]:
        """Pods that ask for ours and don't start."""
        totals: dict[str, int] = {}
        for node in self.cluster.nodes():
            add_advertised(totals, node, (*self.cluster.prefixes, UNIT_RESOURCE))
        waiters = 0
        for pod in self.cluster.items("/api/v1/pods", fieldSelector="status.phase=Pending"):
            asked = _asked(pod, self.cluster.prefixes)
            waiters += bool(asked)
            if asked and (pod.get("spec") or {}).get("nodeName"):
                yield from _starting(pod)
                continue
            for key in asked:
                yield _unscheduled(pod, key, totals)
        if not waiters:
            yield ok("no pod that asks for ours is pending")

    def ended(self) -> Iterator[Line]:
        """Pods that the kubelet has refused for their devices."""
        for pod in self.cluster.items("/api/v1/pods", fieldSelector="status.phase=Failed"):
            status = pod.get("status") or {}
            if status.get("reason") == "UnexpectedAdmissionError" and _asked(
                pod, self.cluster.prefixes
            ):
                why = plain(str(status.get("message")), 500)
                yield warning(
                    f"{_named(pod)} has failed for good: {why}",
                    "delete it, and create it again if nothing has done so already",
                )


def _unscheduled(pod: Json, key: str, totals: dict[str, int]) -> Line:
    name = key.partition("/")[2]
    who = _named(pod)
    if not is_physical(name) and key != UNIT_RESOURCE and name not in totals:
        return failed(
            f"{who} waits for {plain(key)}, a name that no webhook has replaced",
            "delete it and create it again once cluster.webhooks is well: names are replaced only"
            " when a pod is created",
        )
    if name not in totals:
        return failed(
            f"{who} waits for {plain(key)}, which no node knows",
            "is there a node with such a card, in the right mode? see cluster.nodes",
        )
    if not totals[name]:
        return failed(
            f"{who} waits for {plain(key)}, of which no node has a healthy one",
            "accelbind doctor on the nodes that know it",
        )
    return warning(
        f"{who} waits for {plain(key)}, of which nodes have {totals[name]}: {_why(pod)}",
        "accelbind devices on their nodes tells who has them",
    )


def _starting(pod: Json) -> Iterator[Line]:
    """Why a pod that has its node doesn't start, where that is about a device."""
    for reason in waiting(pod):
        if any(word in reason for word in _START):
            yield failed(f"{_named(pod)} doesn't start: {plain(reason, 600)}", _WHERE_NEXT)


def _why(pod: Json) -> str:
    """What the scheduler says."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") != "True":
            return plain(str(one.get("message") or one.get("reason")), 300)
    return "the scheduler has said nothing yet"


def _asked(pod: Json, prefixes: tuple[str, ...]) -> list[str]:
    """What the containers of a pod ask for of our domains."""
    spec = pod.get("spec") or {}
    keys: set[str] = set()
    for part in ("initContainers", "containers"):
        for container in spec.get(part) or ():
            limits = (container.get("resources") or {}).get("limits") or {}
            keys.update(key for key in limits if key.startswith(prefixes) or key == UNIT_RESOURCE)
    return sorted(keys)


def _named(pod: Json) -> str:
    metadata = pod.get("metadata") or {}
    return f"pod {plain(str(metadata.get('namespace')))}/{plain(str(metadata.get('name')))}"
