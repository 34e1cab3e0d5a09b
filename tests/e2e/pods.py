"""Pods of the suite: made, waited for, and asked what they were given.

A container writes what it sees into its termination message, which stands in the pod's status: that
takes neither logs nor a way into the container. The simulator has no containers; its kubelet notes
what it gave in an annotation.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.names import DOMAIN, is_physical
from simulator.kubelet.reports import GIVEN_ANNOTATION
from tests.e2e.api import Json, Place, Refused, until
from tests.e2e.cluster import MANIFESTS, NODES, Cluster

DEFAULT_IMAGE = "busybox:1.37"
SAMPLES = MANIFESTS / "samples"
ADMISSION_SECONDS = 60.0
NO_IMAGE = {"InvalidImageName", "ErrImageNeverPull"}
"""Reasons of a pod to wait for ever; a pull that failed is tried again."""

SHOW = """\
{ env | grep -E '^(FPGA_|ACCELERATOR_|ACCELBIND_)'
  for each in /dev/dfl-* /dev/intel-fpga-*; do [ -c "$each" ] && echo "device $each"; done
} >/dev/termination-log; true"""
STAY = "trap 'exit 0' TERM; while true; do sleep 1; done"


class Broken(Exception):
    """A pod that will never run; says why."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a container was given: device nodes by their path in it, and variables of ours."""

    devices: frozenset[str] = frozenset()
    env: Mapping[str, str] = field(default_factory=dict)


def simple(name: str, limits: Mapping[str, int], script: str = SHOW, **container: Any) -> Json:
    """A pod of one container `show` that passes the Pod Security level baseline."""
    shown: Json = {
        "name": "show",
        "image": DEFAULT_IMAGE,
        "command": ["sh", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if limits:
        shown["resources"] = {"limits": dict(limits)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [shown | container]},
    }


def sample(path: Path) -> Iterator[Json]:
    """The objects of a sample, without the namespace that they have there."""
    for item in yaml.safe_load_all(path.read_text()):
        del item["metadata"]["namespace"]
        yield item


def sample_pods() -> dict[str, list[Json]]:
    """The samples of pods, by file name; a Deployment's stand for themselves."""
    return {path.stem: list(sample(path)) for path in sorted((SAMPLES / "pods").glob("*.yaml"))}


def sample_mappings() -> list[Json]:
    return [item for path in sorted((SAMPLES / "mappings").glob("*.yaml")) for item in sample(path)]


def pod_of(deployment: Json, name: str) -> Json:
    """The pod that a Deployment's template describes."""
    template = json.loads(json.dumps(deployment["spec"]["template"]))
    template["metadata"]["name"] = name
    return {"apiVersion": "v1", "kind": "Pod", **template}


def containers(pod: Json) -> list[Json]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or []), *spec["containers"]]


class Pods:
    """Pods in one namespace of a run, on the node under test."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.place = Place("v1", "Pod", namespace)
        self.deployments = Place("apps/v1", "Deployment", namespace)
        self._deployments: list[str] = []
        self.patience = cluster.settings.patience

    def fitted(self, item: Json) -> Json:
        """A pod, or what has a template of one, in the namespace, on the node, with the image."""
        item = json.loads(json.dumps(item))
        item["metadata"]["namespace"] = self.namespace
        spec = item["spec"].get("template", item)["spec"]
        if self.cluster.node:
            spec |= self._bound()
        spec["tolerations"] = [{"operator": "Exists"}]
        spec["enableServiceLinks"] = False
        spec.setdefault("terminationGracePeriodSeconds", 2)
        for each in [*(spec.get("initContainers") or []), *spec["containers"]]:
            each["image"] = self.cluster.settings.image or each["image"]
            each["imagePullPolicy"] = "IfNotPresent"
        return item

    def _bound(self) -> Json:
        """What leads a pod to the node by way of the scheduler."""
        labels = self.cluster.api.get(NODES, self.cluster.node)["metadata"].get("labels", {})
        hostname = labels.get("kubernetes.io/hostname")
        if hostname:
            return {"nodeSelector": {"kubernetes.io/hostname": hostname}}
        return {"nodeName": self.cluster.node}

    # Creating

    def try_out(self, item: Json) -> Json:
        """What would become of a pod: admitted by everybody, and not stored."""
        return self.cluster.api.create(self.fitted(item), dry_run=True)

    def refusal(self, item: Json) -> Refused:
        with pytest.raises(Refused) as caught:
            self.try_out(item)
        return caught.value

    def create(self, item: Json) -> str:
        """Create a pod, or a Deployment, and give its name."""
        if item["kind"] == "Deployment":
            self._deployments.append(item["metadata"]["name"])
        name: str = self.cluster.api.create(self.fitted(item))["metadata"]["name"]
        return name

    def admitted(self, item: Json) -> Json:
        """The same for a pod that must be admitted, once everybody has heard of its mapping.

        API servers and webhooks learn of new configurations and mappings a moment later.
        """

        def look() -> Json:
            made = self.try_out(item)
            names = {name for each in containers(made) for name in limits_of(each)}
            left = sorted(name for name in names if is_logical(name))
            assert not left, f"admitted with {left}: the API server asks no webhook"
            return made

        name = item["metadata"]["name"]
        seconds = min(self.patience, ADMISSION_SECONDS)
        return until(look, seconds=seconds, what=f"pod {name} to be admitted")

    def start(self, item: Json) -> str:
        """Create a pod as soon as it is admitted, and give its name."""
        self.admitted(item)
        return self.create(item)

    # Waiting

    def get(self, name: str) -> Json:
        return self.cluster.api.get(self.place, name)

    def begun(self, name: str) -> Json:
        """A pod whose containers run or have done so well."""

        def look() -> Json:
            pod = self.get(name)
            status = pod.get("status", {})
            phase = status.get("phase")
            if phase == "Failed" or NO_IMAGE & {each.get("reason") for each in waiting(status)}:
                raise Broken(f"pod {name}: {self.described(pod)}")
            done = phase == "Succeeded" or (phase == "Running" and _all_run(status))
            assert done, self.described(pod)
            return pod

        try:
            return until(look, seconds=self.patience, what=f"pod {name} to run")
        except AssertionError as error:
            if "Insufficient" in str(error) and not self.cluster.settings.host_processes:
                pytest.skip(f"other pods use the deployed devices: {error}")
            raise

    def given(self, name: str) -> dict[str, Given]:
        """What each container of a pod with the script `SHOW` was given, once it has told."""

        def look() -> dict[str, Given]:
            pod = self.begun(name)
            noted = pod["metadata"].get("annotations", {}).get(GIVEN_ANNOTATION)
            found = _from_annotation(noted) if noted else dict(told_by(pod["status"]))
            names = {each["name"] for each in containers(pod)}
            assert found.keys() >= names, f"{self.described(pod)}; told by {sorted(found)} only"
            return found

        return until(look, seconds=self.patience, what=f"pod {name} to tell what it was given")

    def until_waiting(self, name: str, words: str) -> None:
        """Wait until a pod, or an event on it, say these words of why it doesn't go on."""

        def look() -> None:
            text = self.described(self.get(name))
            assert words in text, text

        until(look, seconds=self.patience, what=f'pod {name} to say "{words}"')

    def claims(self) -> list[Json]:
        place = Place("resource.k8s.io/v1", "ResourceClaim", self.namespace)
        return self.cluster.api.list(place)

    def until_unclaimed(self) -> None:
        def look() -> None:
            left = [each["metadata"]["name"] for each in self.claims()]
            assert not left, str(left)

        until(look, seconds=self.patience, what="the end of all claims")

    def labelled(self, **labels: str) -> list[Json]:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return self.cluster.api.list(self.place, labelSelector=selector)

    def remove(self, *names: str) -> None:
        for name in names:
            self.cluster.api.delete(self.place, name, grace=1)
        for name in names:
            self.cluster.remove(self.place, name, grace=1)

    def tidy(self) -> None:
        """Have all pods of the namespace go, and Deployments, which would make new ones."""
        for name in self._deployments:
            self.cluster.remove(self.deployments, name)
        self._deployments.clear()
        self.remove(*(each["metadata"]["name"] for each in self.cluster.api.list(self.place)))

    def described(self, pod: Json) -> str:
        """Why a pod is where it is, in one line, with what its events say."""
        status = pod.get("status", {})
        parts = [f"phase {status.get('phase')}"]
        parts += [str(status[key]) for key in ("reason", "message") if status.get(key)]
        parts += [
            f"{each['type']}: {each['message']}"
            for each in status.get("conditions") or []
            if each.get("message")
        ]
        parts += [f"{each.get('reason')} {each.get('message', '')}" for each in waiting(status)]
        parts += self._events(pod["metadata"])
        return "; ".join(part.strip() for part in parts)

    def _events(self, metadata: Json) -> Iterable[str]:
        selector = f"involvedObject.uid={metadata['uid']}"
        place = Place("v1", "Event", self.namespace)
        try:
            found = self.cluster.api.list(place, fieldSelector=selector)
        except Refused as error:
            return [f"(its events: {error.text})"]
        return [
            f"event {each['reason']}: {each['message']}"
            for each in found
            if each.get("type") == "Warning"
        ]


def limits_of(container: Json) -> dict[str, str]:
    found: dict[str, str] = (container.get("resources") or {}).get("limits") or {}
    return found


def waiting(status: Json) -> Iterator[Json]:
    """The states of containers that wait."""
    for part in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(part) or []:
            if "waiting" in (each.get("state") or {}):
                yield each["state"]["waiting"]


def is_logical(resource: str) -> bool:
    """Whether a resource is one of ours by the name that people give it."""
    domain, _, name = resource.partition("/")
    return domain == DOMAIN and not is_physical(name)


def _all_run(status: Json) -> bool:
    states = status.get("containerStatuses") or []
    return bool(states) and all(
        {"running", "terminated"} & (each.get("state") or {}).keys() for each in states
    )


def _from_annotation(text: str) -> dict[str, Given]:
    return {
        name: Given(
            frozenset(each["containerPath"] for each in told["devices"]),
            {each["name"]: each["value"] for each in told["env"] if "value" in each},
        )
        for name, told in json.loads(text).items()
    }


def told_by(status: Json) -> Iterator[tuple[str, Given]]:
    """What containers that have ended have told of themselves, by the script `SHOW`."""
    for part in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(part) or []:
            ended = (each.get("state") or {}).get("terminated")
            if ended is not None:
                lines = (ended.get("message") or "").splitlines()
                devices = frozenset(
                    line.removeprefix("device ") for line in lines if line.startswith("device ")
                )
                pairs = (line.partition("=") for line in lines if "=" in line)
                yield each["name"], Given(devices, {name: value for name, _, value in pairs})
