"""Binds pending pods to nodes that have what they request.

Filters of the real scheduler that matter to accelerators: node name, cordon, node selector, taints
that tolerations don't cover, and requests against allocatable minus what pods bound there take.
Among fitting nodes the one with the fewest pods wins, then the first by name. A pod that fits
nowhere gets a condition and an event, and is tried again when a node or a pod changes.
Not modelled: affinity, topology spread, preemption, priorities, volumes.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from simulator.apiserver import quantities
from simulator.apiserver.asking import timestamp
from simulator.apiserver.resources import EVENTS, NODES, PODS
from simulator.apiserver.store import Change, Store
from simulator.apiserver.wire import Json

NAME = "default-scheduler"
_ONE_POD = Counter(pods=10**9)
_ALWAYS_COUNTED = ("cpu", "memory", "ephemeral-storage", "pods")


def requests_of(pod: Json) -> Counter[str]:
    """What a pod takes on its node, by resource, in units of 10⁻⁹.

    App containers and sidecars add up; an init container needs its own beside the sidecars started
    before it; the larger of both counts.
    """
    spec = pod["spec"]
    running = _total(spec.get("containers") or [])
    sidecars: Counter[str] = Counter()
    highest: Counter[str] = Counter()
    for container in spec.get("initContainers") or []:
        asked = _total([container])
        if container.get("restartPolicy") == "Always":
            sidecars += asked
            highest |= sidecars
        else:
            highest |= sidecars + asked
    return (running + sidecars) | highest


def _total(containers: Iterable[Json]) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in containers:
        asked = (container.get("resources") or {}).get("requests") or {}
        for name, amount in asked.items():
            total[name] += quantities.nanos(amount)
    return total


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a node does not fit a pod.

    Args:
        reason: the scheduler's words, without the count before them.
        evictable: whether the node could serve the pod if others left.
    """

    reason: str
    evictable: bool = False


class Scheduler:
    """Tries pending pods whenever pods or nodes change."""

    def __init__(self, store: Store, *, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stops: list[Callable[[], None]] = []

    def start(self) -> None:
        """Start."""
        self._stops = [self._store.listen(one, self._on_change) for one in (PODS, NODES)]
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends."""
        for stop in self._stops:
            stop()
        self._stops = []
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _on_change(self, _change: Change) -> None:
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self.run_once()

    def run_once(self) -> None:
        """Tries every pending pod, oldest first."""
        pods = list(self._store.all(PODS))
        pending = [pod for pod in pods if _is_pending(pod)]
        if not pending:
            return
        nodes = {node["metadata"]["name"]: node for node in self._store.all(NODES)}
        taken: dict[str, Counter[str]] = {name: Counter() for name in nodes}
        for pod in pods:
            if (node := pod["spec"].get("nodeName")) in taken and not _is_over(pod):
                taken[node] += requests_of(pod) + _ONE_POD
        pending.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], _version(pod)))
        for pod in pending:
            self._place(pod, nodes, taken)

    def _place(self, pod: Json, nodes: Mapping[str, Json], taken: dict[str, Counter[str]]) -> None:
        asked = requests_of(pod)
        problems = {name: _problems(pod, asked, node, taken[name]) for name, node in nodes.items()}
        fitting = [name for name, found in problems.items() if not found]
        if not fitting:
            self._report(pod, unschedulable_text(problems.values()))
            return
        chosen = min(fitting, key=lambda name: (taken[name]["pods"], name))
        taken[chosen] += asked + _ONE_POD
        self.bind(pod, chosen)

    def bind(self, pod: Json, node: str) -> None:
        """Assigns a pod to a node, as the binding subresource does."""
        pod["spec"]["nodeName"] = node
        self._set_condition(pod, {"status": "True"})
        self._store.write(PODS, pod)
        metadata = pod["metadata"]
        where = f"{metadata['namespace']}/{metadata['name']}"
        self._event(pod, "Normal", "Scheduled", f"Successfully assigned {where} to {node}")

    def _report(self, pod: Json, message: str) -> None:
        condition = {"status": "False", "reason": "Unschedulable", "message": message}
        if not self._set_condition(pod, condition):
            return
        self._store.write(PODS, pod)
        self._event(pod, "Warning", "FailedScheduling", message)

    def _set_condition(self, pod: Json, values: Json) -> bool:
        """Set the condition PodScheduled; False if it was there already."""
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        old = next((one for one in conditions if one["type"] == "PodScheduled"), None)
        if old is not None and all(old.get(name) == value for name, value in values.items()):
            return False
        since = timestamp(self._now())
        if old is not None and old.get("status") == values["status"]:
            since = old.get("lastTransitionTime", since)
        others = [one for one in conditions if one["type"] != "PodScheduled"]
        condition = {"type": "PodScheduled", "lastTransitionTime": since} | values
        pod["status"]["conditions"] = [*others, condition]
        return True

    def _event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        metadata = pod["metadata"]
        time = timestamp(self._now())
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
                    "resourceVersion": metadata["resourceVersion"],
                },
                "reason": reason,
                "message": message,
                "source": {"component": NAME},
                "firstTimestamp": time,
                "lastTimestamp": time,
                "count": 1,
                "type": kind,
                "reportingComponent": NAME,
                "reportingInstance": "",
            },
        )


def _version(pod: Json) -> int:
    return int(pod["metadata"]["resourceVersion"])


def _is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_pending(pod: Json) -> bool:
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and spec.get("schedulerName") == NAME
        and not spec.get("schedulingGates")
        and not _is_over(pod)
        and not pod["metadata"].get("deletionTimestamp")
    )


def _problems(pod: Json, asked: Counter[str], node: Json, taken: Counter[str]) -> list[Problem]:
    """Why a node does not fit a pod, with the scheduler's texts."""
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return [Problem("node(s) were unschedulable")]
    labels = node["metadata"].get("labels") or {}
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        return [Problem("node(s) didn't match Pod's node affinity/selector")]
    tolerations = pod["spec"].get("tolerations") or []
    if any(_repels(taint, tolerations) for taint in spec.get("taints") or []):
        return [Problem("node(s) had untolerated taint(s)")]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    problems = []
    for name, amount in sorted((asked + _ONE_POD).items()):
        counted = name in _ALWAYS_COUNTED or name.startswith("hugepages-")
        if counted and name not in allocatable:
            continue  # a stand-in node may be silent about what nobody runs out of
        total = quantities.nanos(allocatable.get(name, 0))
        if amount > total - taken[name]:
            reason = "Too many pods" if name == "pods" else f"Insufficient {name}"
            problems.append(Problem(reason, evictable=amount <= total))
    return problems


def _repels(taint: Json, tolerations: list[Json]) -> bool:
    if taint.get("effect") not in ("NoSchedule", "NoExecute"):
        return False
    return not any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    same_value = toleration.get("value", "") == taint.get("value", "")
    return toleration["key"] == taint.get("key") and (exists or same_value)


def unschedulable_text(problems: Iterable[list[Problem]]) -> str:
    """The message of a pod that fits nowhere, as the real scheduler words it."""
    by_node = list(problems)
    if not by_node:
        return "no nodes available to schedule pods"
    reasons = Counter(problem.reason for found in by_node for problem in found)
    total = f"0/{len(by_node)} nodes are available"
    could_evict = sum(all(problem.evictable for problem in found) for found in by_node)
    preemption = Counter(
        {
            "No preemption victims found for incoming pod": could_evict,
            "Preemption is not helpful for scheduling": len(by_node) - could_evict,
        }
    )
    return f"{total}: {_counted(reasons)}. preemption: {total}: {_counted(preemption)}."


def _counted(reasons: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
