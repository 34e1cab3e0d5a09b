"""What the demo expects to see, and whether it did: it fails where anything is off."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.names import DOMAIN, UNIT_RESOURCE
from simulator.demo.api import Json
from simulator.demo.cluster import ContainerPlan, NodePlan, PodPlan

GIVEN = "simulator.accelbind.dev/containers"
"""Annotation in which the kubelet stand-in shows what it gave each container."""

REQUESTED = "accelbind.dev/requested"


@dataclass(slots=True)
class Checks:
    """Expectations in the order in which they were looked at."""

    results: list[tuple[str, str]] = field(default_factory=list)
    """What was expected, and what was wrong with it (empty: nothing)."""

    @property
    def failed(self) -> list[tuple[str, str]]:
        """Those that did not hold."""
        return [result for result in self.results if result[1]]

    def equal(self, what: str, seen: object, expected: object) -> None:
        """Two values are the same."""
        self.results.append((what, "" if seen == expected else f"{seen!r} is not {expected!r}"))

    def holds(self, what: str, words: tuple[str, ...], text: str) -> None:
        """A text has these words in it."""
        missing = [word for word in words if word not in text]
        self.results.append((what, f"{missing!r} not in {text!r}" if missing else ""))


def capacity(node: Json) -> dict[str, int]:
    """What a node has of ours."""
    all_of_it = node.get("status", {}).get("capacity", {})
    ours = (f"{DOMAIN}/", UNIT_RESOURCE)
    return {name: int(n) for name, n in all_of_it.items() if name.startswith(ours)}


def has_capacity(node: Json, plan: NodePlan) -> bool:
    """Whether a node has all that its cards are worth, and nothing else."""
    return capacity(node) == dict(plan.capacity)


def given(pod: Json) -> dict[str, Json]:
    """Container → what the kubelet gave it (env, devices, allocated ids)."""
    text = pod["metadata"].get("annotations", {}).get(GIVEN, "{}")
    found: dict[str, Json] = json.loads(text)
    return found


def environment(container: Json) -> dict[str, str]:
    """The variables that a container starts with; one from elsewhere has its source as value."""
    return {
        one["name"]: str(one["value"]) if "value" in one else f"({one.get('valueFrom')})"
        for one in container.get("env", [])
    }


def has_started(pod: Json, plan: PodPlan) -> bool:
    """Whether every app container runs (or has run), after every init container."""
    status = pod.get("status", {})
    states = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
    begun = {
        one["name"] for one in states if {"running", "terminated"} & one.get("state", {}).keys()
    }
    return begun >= {one.name for one in plan.containers} <= given(pod).keys()


def check_pod(checks: Checks, plan: PodPlan, written: Json, pod: Json) -> None:
    """Compares a pod that runs with what must come of it."""
    name = pod["metadata"]["name"]
    checks.equal(f"{name}: bound to {plan.node}", pod["spec"].get("nodeName"), plan.node)
    for container in plan.containers:
        _check_container(checks, plan, container, written, pod)
    asked = {
        one["name"]: {
            resource: int(count) for resource, count in one["resources"]["limits"].items()
        }
        for _, one in containers(written)
    }
    noted = json.loads(pod["metadata"].get("annotations", {}).get(REQUESTED, "{}"))
    checks.equal(f"{name}: what was asked for is still to be read", noted, asked)
    shares = {
        resource: {tuple(one["allocated"].get(resource, ())) for one in given(pod).values()}
        for resource in {resource for one in plan.containers for resource in one.limits}
    }
    if len(plan.containers) > 1:
        same = all(len(ids) == 1 for ids in shares.values())
        checks.equal(f"{name}: its containers have the same device", same, expected=True)


def _check_container(
    checks: Checks, plan: PodPlan, container: ContainerPlan, written: Json, pod: Json
) -> None:
    label = f"{pod['metadata']['name']}/{container.name}"
    stored = container_named(pod, container.name)
    limits = {name: int(count) for name, count in stored["resources"]["limits"].items()}
    checks.equal(f"{label}: asks for physical resources", limits, dict(container.limits))
    mine = container_named(written, container.name).get("env", [])
    kept = stored.get("env", [])[: len(mine)]
    checks.equal(f"{label}: its own variables are as written", _known_part(kept, mine), mine)
    got = given(pod)[container.name]
    seen = environment(got)
    expected = dict(container.env)
    checks.equal(
        f"{label}: starts with its variables", {name: seen.get(name) for name in expected}, expected
    )
    devices = got.get("devices", [])
    checks.equal(
        f"{label}: has {container.devices} device node(s)", len(devices), container.devices
    )
    outside = [
        one["hostPath"] for one in devices if f"/{plan.node}/root/dev/" not in one["hostPath"]
    ]
    checks.equal(f"{label}: they are its node's", outside, [])
    strange = [
        one["containerPath"] for one in devices if not one["containerPath"].startswith("/dev/")
    ]
    checks.equal(f"{label}: it finds them in /dev", strange, [])


def _known_part(stored: Any, written: Any) -> Any:  # noqa: ANN401 - JSON
    """What is stored, without the members that the API server has filled in."""
    if isinstance(stored, dict) and isinstance(written, dict):
        return {key: _known_part(stored.get(key), value) for key, value in written.items()}
    if isinstance(stored, list) and isinstance(written, list) and len(stored) == len(written):
        return [_known_part(one, other) for one, other in zip(stored, written, strict=True)]
    return stored


def containers(pod: Json) -> list[tuple[str, Json]]:
    """A pod's containers, init containers first, each with the list it stands in."""
    spec: Mapping[str, Any] = pod["spec"]
    return [(kind, one) for kind in ("initContainers", "containers") for one in spec.get(kind, [])]


def container_named(pod: Json, name: str) -> Json:
    """One container of a pod."""
    return next(one for _, one in containers(pod) if one["name"] == name)
