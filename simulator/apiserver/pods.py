"""What happens to a pod here: defaults, checks of its resources, and a node for it.

Of defaults and checks only what the suite or its clients can see: the defaults of the recorded
reviews, and limits copied into requests.

The scheduler has the filters of the real one that matter to accelerators: cordon, node selector,
and requests against allocatable minus what pods bound there use. Among fitting nodes the
one with the fewest pods wins, then the first by name. A pod that fits nowhere gets a condition and
an event, and is tried again when a node or a pod changes.
"""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from uuid import uuid4

from simulator.apiserver.calls import Cause, bad_request, invalid
from simulator.apiserver.resources import EVENTS, NODES, PODS, Json
from simulator.apiserver.store import Change, Store, timestamp

SCHEDULER = "default-scheduler"
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)(?:[eE]([+-]?\d{1,3})|([numkMGTPE]i?|))")
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": SCHEDULER,
    "enableServiceLinks": True,
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_TOLERATIONS = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]


def containers_of(pod: Json) -> Iterator[tuple[str, Json]]:
    """All containers with their field paths, init containers first."""
    for group in ("initContainers", "containers"):
        for at, container in enumerate(pod["spec"].get(group) or []):
            yield f"spec.{group}[{at}]", container


def set_defaults(pod: Json) -> None:
    """Fill in the defaults of core/v1."""
    pod.setdefault("status", {})
    spec = pod.setdefault("spec", {})
    for _, container in containers_of(pod):
        _default_container(container)
    for name, value in _SPEC.items():
        spec.setdefault(name, value)


def _default_container(container: Json) -> None:
    tag = container.get("image", "").rpartition("/")[2]
    moving = tag.endswith(":latest") or (":" not in tag and "@" not in tag)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if moving else "IfNotPresent")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(name):
            probe |= _PROBE | probe
    resources = container.setdefault("resources", {})
    for name in ("limits", "requests"):
        if amounts := resources.get(name):
            resources[name] = {key: str(value) for key, value in amounts.items()}
    if limits := resources.get("limits"):
        resources["requests"] = dict(sorted((limits | resources.get("requests", {})).items()))


def admit(pod: Json) -> None:
    """What the built-in admission plugins add before any webhook: tolerations and priority."""
    spec = pod["spec"]
    spec["tolerations"] = [*spec.get("tolerations", []), *_TOLERATIONS]
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def validate(pod: Json) -> None:
    """Refuse a pod without containers or images, or with a quantity that is none."""
    causes = [] if pod["spec"].get("containers") else [Cause("spec.containers", "Required value")]
    for path, container in containers_of(pod):
        causes += [
            Cause(f"{path}.{field}", "Required value")
            for field in ("name", "image")
            if not container.get(field)
        ]
    if causes:
        raise invalid(PODS, pod["metadata"]["name"], causes)
    requests_of(pod)


def amount_of(quantity: object) -> Fraction:
    """The amount of a quantity; StatusError 400 for a text that is none."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise bad_request(f"quantities must be numbers with a suffix: {quantity!r}")
    digits, exponent, suffix = match.groups(default="")
    if suffix.endswith("i"):
        return Fraction(digits) * Fraction(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    power = _POWERS.get(suffix, 18)
    return Fraction(digits) * Fraction(10) ** int(exponent or power)


# Scheduling

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

    def __init__(self, store: Store) -> None:
        self._store = store
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
        """Try every pending pod, oldest first."""
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
            by_node = {
                each["metadata"]["name"]: _problems(pod, asked, each, taken) for each in nodes
            }
            fitting = [name for name, problems in by_node.items() if not problems]
            if not fitting:
                self._report(pod, unschedulable_text(by_node.values()))
                continue
            chosen = min(fitting, key=lambda name: (taken[name].get("pods", 0), name))
            taken[chosen] = _sum(taken[chosen], asked)
            self.bind(pod, chosen)

    def bind(self, pod: Json, node: str) -> None:
        """Assign a pod to a node, as the binding subresource does."""
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
        made = {"type": "PodScheduled", "lastTransitionTime": timestamp()} | values
        pod["status"]["conditions"] = [one for one in conditions if one is not old] + [made]
        return True

    def _event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        metadata, time = pod["metadata"], timestamp()
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
                "source": {"component": SCHEDULER},
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
        and pod["spec"].get("schedulerName") == SCHEDULER
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
