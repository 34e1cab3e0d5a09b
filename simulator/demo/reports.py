"""The end of a pod, and its differences from what was expected."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.names import ACCELERATOR_DOMAIN, DEVICE_DOMAIN, DOMAIN, UNIT_RESOURCE
from simulator.client import Json
from simulator.demo.cluster import DemoPod, Expected, NodePlan
from simulator.kubelet.reports import GIVEN_ANNOTATION

_OURS = (f"{DOMAIN}/", f"{ACCELERATOR_DOMAIN}/", f"{DEVICE_DOMAIN}/", UNIT_RESOURCE)


@dataclass(frozen=True, slots=True)
class PodReport:
    plan: DemoPod
    stored: Json | None
    """The pod as the API server has it; None if it was refused."""
    refusal: Json
    """The Status of the API server if it was refused."""
    patch: Sequence[Json] = ()
    """The webhook's JSON patch."""
    driver_calls: Sequence[Json] = ()
    """What its node's driver has done meanwhile."""
    reasons: Sequence[str] = ()
    """Why it does not run, a sentence each."""

    @property
    def is_running(self) -> bool:
        return self.stored is not None and is_running(self.stored)

    @property
    def node(self) -> str:
        """Where it is bound; empty if it is not."""
        return str((self.stored or {}).get("spec", {}).get("nodeName", ""))

    @property
    def asked_for(self) -> list[tuple[str, str]]:
        """The resources that its author wrote, each after its count if that is above 1."""
        found: dict[tuple[str, str], None] = {}
        for container in containers(self.plan.pod):
            for name, count in (container.get("resources", {}).get("limits") or {}).items():
                if is_ours(name):
                    found["" if str(count) == "1" else f"{count} x ", name] = None
        return list(found)

    @property
    def became(self) -> list[str]:
        """The resources that its containers are started with."""
        limits = [
            one.get("resources", {}).get("limits") or {} for one in containers(self.stored or {})
        ]
        return list(dict.fromkeys(name for each in limits for name in each))

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
    """Whether a resource is served or replaced by accelbind."""
    return name.startswith(_OURS)


def short(name: str) -> str:
    """The name of a resource without a domain of ours."""
    domain, _, last = name.partition("/")
    return last if domain in (DOMAIN, ACCELERATOR_DOMAIN, DEVICE_DOMAIN) else name


def capacity(node: Json) -> dict[str, int]:
    every = node.get("status", {}).get("capacity", {})
    return {name: int(count) for name, count in every.items() if is_ours(name)}


def has_capacity(node: Json, plan: NodePlan) -> bool:
    """Whether a node has exactly what its cards provide."""
    return capacity(node) == dict(plan.capacity)


def given(pod: Json) -> dict[str, Json]:
    """Everything that the kubelet gave each container: environment, devices, allocated ids."""
    text = pod.get("metadata", {}).get("annotations", {}).get(GIVEN_ANNOTATION, "{}")
    environment: dict[str, Json] = json.loads(text)
    return environment


def containers(pod: Json) -> list[Json]:
    """A pod's containers, init containers first."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def is_running(pod: Json) -> bool:
    """Whether all containers have started, init containers before them."""
    states = pod.get("status", {}).get("containerStatuses", [])
    started = {
        one["name"] for one in states if one.get("state", {}).keys() & {"running", "terminated"}
    }
    names = {one["name"] for one in pod["spec"]["containers"]}
    return names <= started and names <= given(pod).keys()


def unexpected(report: PodReport) -> list[str]:
    plan = report.plan.expected
    if plan is None:
        return []
    return [
        f"{report.plan.name}: {what} is {seen!r}, expected {expected!r}"
        for what, seen, expected in _compared(plan, report)
        if seen != expected
    ]


def _compared(plan: Expected, report: PodReport) -> Iterator[tuple[str, object, object]]:
    status, message = report.refusal, str(report.refusal.get("message", ""))
    if plan.refusal:
        yield "the answer", (status.get("code"), status.get("reason")), (403, "Forbidden")
        missing = [words for words in plan.refusal if words not in message]
        yield f"missing in the refusal {message!r}", missing, []
    elif not report.is_running:
        yield "the outcome", message or list(report.reasons), "running"
    else:
        yield "the node", report.node, plan.node
        yield "the number of devices", len(report.devices), plan.devices
        if plan.programmed is not None:
            programmed = tuple(afu_id for _, afu_id in report.programmed)
            yield "what was programmed", programmed, plan.programmed


def is_good(reports: Sequence[PodReport], problems: Sequence[str]) -> bool:
    """Whether there are no problems, and every pod without expectations runs."""
    return not problems and all(one.is_running or one.plan.expected for one in reports)
