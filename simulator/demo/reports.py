"""What became of a pod, and how that differs from what was expected."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.names import DOMAIN, UNIT_RESOURCE
from simulator.demo.api import Json
from simulator.demo.cluster import ContainerPlan, DemoPod, Expected, NodePlan

GIVEN = "simulator.accelbind.dev/containers"
"""Annotation in which the kubelet stand-in writes what it gave each container."""

REQUESTED = "accelbind.dev/requested"


@dataclass(frozen=True, slots=True)
class PodReport:
    """What became of a pod.

    Args:
        plan: what was to be created.
        stored: the pod as the API server has it; None if it was refused.
        refusal: the Status of the API server if it was refused.
        patch: the webhook's JSON patch.
        driver_calls: what its node's driver has done meanwhile.
        reasons: why it does not run, a sentence each.
    """

    plan: DemoPod
    stored: Json | None
    refusal: Json
    patch: Sequence[Json] = ()
    driver_calls: Sequence[Json] = ()
    reasons: Sequence[str] = ()

    @property
    def is_running(self) -> bool:
        """Whether its containers have started."""
        return self.stored is not None and is_running(self.stored)

    @property
    def node(self) -> str:
        """Where it is bound; empty if it is not."""
        return str((self.stored or {}).get("spec", {}).get("nodeName", ""))

    @property
    def asked_for(self) -> list[str]:
        """The resources that its author wrote, without our domain, with counts above 1."""
        found: dict[str, None] = {}
        for container in containers(self.plan.pod):
            for name, count in (container.get("resources", {}).get("limits") or {}).items():
                if is_ours(name):
                    text = name.removeprefix(f"{DOMAIN}/")
                    found[text if str(count) == "1" else f"{count} x {text}"] = None
        return list(found)

    @property
    def devices(self) -> list[str]:
        """The device nodes that its containers have, each once."""
        each = [one for got in given(self.stored or {}).values() for one in got.get("devices", [])]
        return list(dict.fromkeys(one["containerPath"] for one in each))

    @property
    def programmed(self) -> list[tuple[str, str]]:
        """Port and AFU id of each time that a region was programmed for it."""
        calls = [one for one in self.driver_calls if one["what"] == "programmed"]
        return [(one["port"], one["afuId"]) for one in calls]


def is_ours(name: str) -> bool:
    """Whether a resource is served by accelbind."""
    return name.startswith((f"{DOMAIN}/", UNIT_RESOURCE))


def capacity(node: Json) -> dict[str, int]:
    """What a node has of our resources."""
    every = node.get("status", {}).get("capacity", {})
    return {name: int(count) for name, count in every.items() if is_ours(name)}


def has_capacity(node: Json, plan: NodePlan) -> bool:
    """Whether a node has exactly what its cards provide."""
    return capacity(node) == dict(plan.capacity)


def given(pod: Json) -> dict[str, Json]:
    """What the kubelet gave each container: environment, devices, allocated ids."""
    text = pod.get("metadata", {}).get("annotations", {}).get(GIVEN, "{}")
    found: dict[str, Json] = json.loads(text)
    return found


def containers(pod: Json) -> list[Json]:
    """A pod's containers, init containers first."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def environment(container: Json) -> dict[str, str]:
    """The variables of a container; one that is taken from elsewhere has its source as value."""
    return {
        one["name"]: str(one["value"]) if "value" in one else f"({one.get('valueFrom')})"
        for one in container.get("env", [])
    }


def is_running(pod: Json) -> bool:
    """Whether all containers have started, init containers before them."""
    states = pod.get("status", {}).get("containerStatuses", [])
    started = {
        one["name"] for one in states if one.get("state", {}).keys() & {"running", "terminated"}
    }
    names = {one["name"] for one in pod["spec"]["containers"]}
    return names <= started and names <= given(pod).keys()


def unexpected(report: PodReport, *, again: bool = False) -> list[str]:
    """What is not as expected, a sentence each.

    Args:
        report: of a pod.
        again: whether the cards may still have the functions of an earlier run.
    """
    plan = report.plan.expected
    if plan is None:
        return []
    found = _refusal(plan, report) if plan.refusal else _running(plan, report, again=again)
    return [
        f"{report.plan.name}: {what} is {seen!r}, expected {expected!r}"
        for what, seen, expected in found
        if seen != expected
    ]


def is_good(reports: Sequence[PodReport], problems: Sequence[str]) -> bool:
    """Whether there are no problems, and every pod without expectations runs."""
    return not problems and all(one.is_running or one.plan.expected for one in reports)


def _refusal(plan: Expected, report: PodReport) -> Iterator[tuple[str, object, object]]:
    status = report.refusal
    yield "the answer", (status.get("code"), status.get("reason")), (403, "Forbidden")
    message = str(status.get("message", ""))
    yield f"missing in the refusal {message!r}", [w for w in plan.refusal if w not in message], []


def _running(
    plan: Expected, report: PodReport, *, again: bool
) -> Iterator[tuple[str, object, object]]:
    stored = report.stored
    if stored is None or not report.is_running:
        yield "the outcome", report.refusal.get("message") or list(report.reasons), "running"
        return
    yield "the node", report.node, plan.node
    yield "whether it was patched", bool(report.patch), True
    noted = json.loads(stored["metadata"].get("annotations", {}).get(REQUESTED, "{}"))
    asked = {one["name"]: _limits(one) for one in containers(report.plan.pod)}
    yield f"the annotation {REQUESTED}", noted, asked
    programmed = tuple(afu_id for _, afu_id in report.programmed)
    if programmed or not again:
        yield "what was programmed", programmed, plan.programmed
    reset = {one["afuId"] for one in report.driver_calls if one["what"] == "reset"}
    yield "what was reset", reset, set(plan.programmed)
    got = given(stored)
    allocated = {json.dumps(one.get("allocated"), sort_keys=True) for one in got.values()}
    yield "the number of different allocations", len(allocated), 1
    for container in plan.containers:
        written = _named(report.plan.pod, container.name)
        yield from _container(plan, container, written, _named(stored, container.name), got)


def _container(
    plan: Expected, container: ContainerPlan, written: Json, stored: Json, given: Mapping[str, Json]
) -> Iterator[tuple[str, object, object]]:
    yield f"{container.name}: limits", _limits(stored), dict(container.limits)
    mine = [one["name"] for one in written.get("env", [])]
    kept = [one["name"] for one in stored.get("env", [])][: len(mine)]
    yield f"{container.name}: its own variables", kept, mine
    got = given[container.name]
    seen = environment(got)
    yield f"{container.name}: env", {name: seen.get(name) for name in container.env}, container.env
    devices = got.get("devices", [])
    yield f"{container.name}: number of devices", len(devices), container.devices
    foreign = [
        one
        for one in devices
        if f"/{plan.node}/root/dev/" not in one["hostPath"]
        or not one["containerPath"].startswith("/dev/")
    ]
    yield f"{container.name}: devices of others", foreign, []


def _named(pod: Json, name: str) -> Json:
    return next(one for one in containers(pod) if one["name"] == name)


def _limits(container: Json) -> dict[str, int]:
    return {name: int(count) for name, count in container["resources"]["limits"].items()}
