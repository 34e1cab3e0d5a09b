"""The scheduler: a node for each pending pod.

It has the filters of the real one that matter to device plugins: cordon, node selector, requests
against allocatable minus what pods bound there use. It allocates no claims.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from uuid import uuid4

from simulator.apiserver.pods import SCHEDULER, Amounts, amount_of, is_over, requests_of, sum_of
from simulator.apiserver.resources import EVENTS, NODES, PODS, Json
from simulator.apiserver.store import Store, event_on, stamped, timestamp

_ONE_POD = {"pods": Fraction(1)}


class Scheduler:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._wake = asyncio.Event()

    async def run_forever(self) -> None:
        with contextlib.ExitStack() as listening:
            for resource in (PODS, NODES):
                listening.callback(self._store.listen(resource, lambda _: self._wake.set()))
            while True:
                self._wake.clear()
                self.run_once()
                await self._wake.wait()

    def run_once(self) -> None:
        """Try every pending pod, oldest first."""
        pods = list(self._store.all(PODS))
        pending = [pod for pod in pods if _is_pending(pod)]
        nodes = list(self._store.all(NODES))
        taken: dict[str, Amounts] = {node["metadata"]["name"]: {} for node in nodes}
        for pod in pods if pending else []:
            if (node := pod["spec"].get("nodeName")) in taken and not is_over(pod):
                taken[node] = sum_of(taken[node], _asked(pod))
        pending.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        for pod in pending:
            problems = {
                node["metadata"]["name"]: _problems(pod, _asked(pod), node, taken) for node in nodes
            }
            fits = [name for name, found in problems.items() if not found]
            if not fits:
                self._report(pod, unschedulable_text(problems.values()))
                continue
            # The fewest pods, then the first by name: a test must know which.
            chosen = min(fits, key=lambda name: (taken[name].get("pods", 0), name))
            taken[chosen] = sum_of(taken[chosen], _asked(pod))
            self.bind(pod, chosen)

    def bind(self, pod: Json, node: str) -> None:
        """Assign a pod to a node, as the binding subresource does."""
        pod["spec"]["nodeName"] = node
        self._set_condition(pod, {"status": "True"})
        self._store.write(PODS, pod)
        where = PODS.path_of(pod)
        self._event(pod, "Normal", "Scheduled", f"Successfully assigned {where} to {node}")

    def _report(self, pod: Json, message: str) -> None:
        # Once for each reason: the write wakes us, and the pod is tried again.
        condition = {"status": "False", "reason": "Unschedulable", "message": message}
        if self._set_condition(pod, condition):
            self._store.write(PODS, pod)
            self._event(pod, "Warning", "FailedScheduling", message)

    def _set_condition(self, pod: Json, values: Json) -> bool:
        """Set the condition PodScheduled; False if it was there already."""
        conditions = pod["status"].setdefault("conditions", [])
        old: Json = next((one for one in conditions if one["type"] == "PodScheduled"), {})
        if old | values == old:
            return False
        made = {"type": "PodScheduled", "lastTransitionTime": timestamp()} | values
        pod["status"]["conditions"] = [one for one in conditions if one is not old] + [made]
        return True

    def _event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        what: Json = {"type": kind, "reason": reason, "message": message}
        what |= {"source": {"component": SCHEDULER}}
        item = event_on(pod["metadata"], uuid4().hex[:16], what, timestamp())
        self._store.write(EVENTS, item | {"metadata": stamped(item["metadata"])})


def _is_pending(pod: Json) -> bool:
    return (
        not pod["spec"].get("nodeName")
        and pod["spec"].get("schedulerName") == SCHEDULER
        and not is_over(pod)
        and not pod["metadata"].get("deletionTimestamp")
    )


def _asked(pod: Json) -> Amounts:
    return sum_of(requests_of(pod), _ONE_POD)


def _problems(pod: Json, asked: Amounts, node: Json, taken: Mapping[str, Amounts]) -> list[str]:
    """Why a node does not fit a pod, with the scheduler's texts."""
    if pod["spec"].get("resourceClaims"):
        return ["the stand-in allocates no claims"]
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return ["node(s) were unschedulable"]
    labels = node["metadata"].get("labels") or {}
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
        return ["node(s) didn't match Pod's node affinity/selector"]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    held = taken[node["metadata"]["name"]]
    problems = []
    for name, amount in sorted(asked.items()):
        if "/" not in name and name not in allocatable:
            continue  # a stand-in node may be silent about what nobody runs out of
        if amount > amount_of(allocatable.get(name, 0)) - held.get(name, 0):
            problems.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return problems


def unschedulable_text(problems: Iterable[list[str]]) -> str:
    """The message of a pod that fits nowhere, as the real scheduler words it."""
    by_node = list(problems)
    if not by_node:
        return "no nodes available to schedule pods"
    reasons = Counter(reason for texts in by_node for reason in texts)
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{len(by_node)} nodes are available: {counted}."
