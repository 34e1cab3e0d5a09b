"""Binds pending pods to nodes that have what they request.

Filters of the real scheduler that matter to accelerators: cordon, node selector, taints that
tolerations don't cover, and requests against allocatable minus what pods bound there take. Among
fitting nodes the one with the fewest pods wins, then the first by name. A pod that fits nowhere
gets a condition and an event, and is tried again when a node or a pod changes.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from uuid import uuid4

from simulator.apiserver.pods import amount_of
from simulator.apiserver.resources import EVENTS, NODES, PODS
from simulator.apiserver.store import Change, Store
from simulator.apiserver.wire import Json, timestamp

NAME = "default-scheduler"
_ONE_POD = {"pods": Fraction(1)}
Amounts = Mapping[str, Fraction]


def requests_of(pod: Json) -> Amounts:
    """What a pod takes on its node, by resource.

    App containers and sidecars add up; an init container needs its own beside the sidecars started
    before it; the larger of both counts.
    """
    spec = pod["spec"]
    sidecars: Amounts = {}
    highest: Amounts = {}
    for container in spec.get("initContainers") or []:
        asked = _requests(container)
        highest = _joined(max, highest, _sum(sidecars, asked))
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, asked)
    return _joined(max, highest, _sum(sidecars, *map(_requests, spec["containers"])))


def _requests(container: Json) -> Amounts:
    asked = (container.get("resources") or {}).get("requests") or {}
    return {name: amount_of(amount) for name, amount in asked.items()}


def _sum(*several: Amounts) -> Amounts:
    return _joined(lambda *amounts: sum(amounts, Fraction()), *several)


def _joined(join: Callable[..., Fraction], *several: Amounts) -> Amounts:
    names = {name for amounts in several for name in amounts}
    return {name: join(*(one.get(name, Fraction()) for one in several)) for name in names}


class Scheduler:
    """Tries pending pods whenever pods or nodes change."""

    def __init__(self, store: Store, *, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._wake = asyncio.Event()

    async def run_forever(self) -> None:
        """Schedule until cancelled."""
        with contextlib.ExitStack() as listening:
            for resource in (PODS, NODES):
                listening.callback(self._store.listen(resource, self._on_change))
            while True:
                self._wake.clear()
                self.run_once()
                await self._wake.wait()

    def _on_change(self, _change: Change) -> None:
        self._wake.set()

    def run_once(self) -> None:
        """Tries every pending pod, oldest first."""
        pods = list(self._store.all(PODS))
        pending = [pod for pod in pods if _is_pending(pod)]
        nodes = list(self._store.all(NODES))
        taken: dict[str, Amounts] = {node["metadata"]["name"]: {} for node in nodes}
        for pod in pods if pending else []:
            if (node := pod["spec"].get("nodeName")) in taken and not _is_over(pod):
                taken[node] = _sum(taken[node], requests_of(pod), _ONE_POD)
        pending.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        for pod in pending:
            asked = _sum(requests_of(pod), _ONE_POD)
            found = {node["metadata"]["name"]: _problems(pod, asked, node, taken) for node in nodes}
            fitting = [name for name, problems in found.items() if not problems]
            if not fitting:
                self._report(pod, unschedulable_text(found.values()))
                continue
            chosen = min(fitting, key=lambda name: (taken[name].get("pods", 0), name))
            taken[chosen] = _sum(taken[chosen], asked)
            self.bind(pod, chosen)

    def bind(self, pod: Json, node: str) -> None:
        """Assigns a pod to a node, as the binding subresource does."""
        pod["spec"]["nodeName"] = node
        self._set_condition(pod, {"status": "True"})
        self._store.write(PODS, pod)
        where = PODS.path_of(pod)
        self._event(pod, "Normal", "Scheduled", f"Successfully assigned {where} to {node}")

    def _report(self, pod: Json, message: str) -> None:
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
        made = {"type": "PodScheduled", "lastTransitionTime": timestamp(self._now())} | values
        pod["status"]["conditions"] = [one for one in conditions if one is not old] + [made]
        return True

    def _event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        metadata, time = pod["metadata"], timestamp(self._now())
        self._store.write(
            EVENTS,
            {
                "kind": "Event",
                "apiVersion": "v1",
                "metadata": {
                    "name": f"{metadata['name']}.{uuid4().hex[:16]}",
                    "namespace": metadata["namespace"],
                    "uid": str(uuid4()),
                    "creationTimestamp": time,
                },
                "involvedObject": {
                    "kind": "Pod",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "apiVersion": "v1",
                },
                "reason": reason,
                "message": message,
                "source": {"component": NAME},
                "firstTimestamp": time,
                "lastTimestamp": time,
                "count": 1,
                "type": kind,
            },
        )


def _is_over(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _is_pending(pod: Json) -> bool:
    return (
        not pod["spec"].get("nodeName")
        and pod["spec"].get("schedulerName") == NAME
        and not _is_over(pod)
        and not pod["metadata"].get("deletionTimestamp")
    )


def _problems(pod: Json, asked: Amounts, node: Json, taken: Mapping[str, Amounts]) -> list[str]:
    """Why a node does not fit a pod, with the scheduler's texts."""
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return ["node(s) were unschedulable"]
    labels = node["metadata"].get("labels") or {}
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
        return ["node(s) didn't match Pod's node affinity/selector"]
    tolerations = pod["spec"].get("tolerations") or []
    if any(_repels(taint, tolerations) for taint in spec.get("taints") or []):
        return ["node(s) had untolerated taint(s)"]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    held = taken[node["metadata"]["name"]]
    problems = []
    for name, amount in sorted(asked.items()):
        if "/" not in name and name not in allocatable:
            continue  # a stand-in node may be silent about what nobody runs out of
        if amount > amount_of(allocatable.get(name, 0)) - held.get(name, 0):
            problems.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return problems


def _repels(taint: Json, tolerations: list[Json]) -> bool:
    return taint["effect"] in ("NoSchedule", "NoExecute") and not any(
        one.get("effect", taint["effect"]) == taint["effect"]
        and one.get("key", taint["key"]) == taint["key"]
        and (one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""))
        for one in tolerations
    )


def unschedulable_text(problems: Iterable[list[str]]) -> str:
    """The message of a pod that fits nowhere, as the real scheduler words it."""
    by_node = list(problems)
    if not by_node:
        return "no nodes available to schedule pods"
    reasons = Counter(reason for found in by_node for reason in found)
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{len(by_node)} nodes are available: {counted}."
