"""Reports of the kubelet to the API server, as JSON values: its node, its pods, its events.

The API of a real cluster does not show what a container was given (variables, device nodes). Here
it is in the pod's annotation `simulator.accelbind.dev/containers`, a JSON object with, by container
name:

    {"env": [{"name": …, "value": …}, …],
     "devices": [{"containerPath": …, "hostPath": …, "permissions": "rw"}, …]}
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from simulator.apiserver.store import event_on, timestamp
from simulator.kubelet.pods import ContainerState, Event, PodState, Stage

Json: TypeAlias = dict[str, Any]

GIVEN_ANNOTATION: Final = "simulator.accelbind.dev/containers"
"""Where a pod shows what the kubelet stand-in gave each container."""
KUBELET_VERSION: Final = "v1.36.2"
NATIVE_RESOURCES: Final = {"cpu": "8", "memory": "16Gi", "pods": "110"}
"""What a node offers besides devices."""


def node(name: str) -> Json:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def node_status(name: str, capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> Json:
    return {
        "capacity": NATIVE_RESOURCES | _counts(capacity),
        "allocatable": NATIVE_RESOURCES | _counts(allocatable),
        "addresses": [{"type": "Hostname", "address": name}],
        "nodeInfo": {"kubeletVersion": KUBELET_VERSION, "operatingSystem": "linux"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }


def _counts(resources: Mapping[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in resources.items()}


def pod_status(pod: PodState) -> Json:
    status: Json = {
        "phase": pod.phase.value,
        "reason": pod.reason or None,
        "message": pod.message or None,
        "startTime": timestamp(pod.since),
    }
    if not pod.active:
        return status
    ready = all(each.running for each in pod if not each.spec.runs_to_completion)
    return status | {
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": str(ready)},
        ],
        "initContainerStatuses": [_container_status(each) for each in pod if each.spec.init],
        "containerStatuses": [_container_status(each) for each in pod if not each.spec.init],
    }


def _container_status(state: ContainerState) -> Json:
    return {
        "name": state.spec.name,
        "ready": state.running or (state.spec.init and state.stage is Stage.TERMINATED),
        "restartCount": max(0, state.started - 1),
        "state": {state.stage.value: _stage(state)},
    }


def _stage(state: ContainerState) -> Json:
    match state.stage:
        case Stage.RUNNING:
            return {"startedAt": timestamp(state.since)}
        case Stage.TERMINATED:
            ended = {"exitCode": state.exit_code, "reason": state.reason}
            return ended | {"finishedAt": timestamp(state.since)}
        case Stage.WAITING:
            return {"reason": state.reason} | ({"message": state.message} if state.message else {})


def given(pod: PodState) -> str:
    """The value of the annotation: what each container that ever started was given."""
    containers = {each.spec.name: _given(each) for each in pod if each.started}
    return json.dumps(containers, separators=(",", ":"))


def _given(state: ContainerState) -> Json:
    granted = state.granted
    env = ({"name": name, "value": value} for name, value in granted.env)
    return {
        "env": [*env, *state.spec.env],
        "devices": [
            {
                "containerPath": each.container_path,
                "hostPath": each.host_path,
                "permissions": each.permissions,
            }
            for each in granted.devices
        ],
    }


def event_object(event: Event, node_name: str) -> Json:
    pod = event.pod
    named = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    what: Json = {"type": event.type, "reason": event.reason, "message": event.message}
    what |= {"source": {"component": "kubelet", "host": node_name}}
    return event_on(named, event.key, what, timestamp(event.at), event.field_path)
