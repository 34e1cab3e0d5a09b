"""Make AdmissionReviews of several sizes, and any number of mappings."""

import hashlib
import json
import uuid
from typing import Any

from services.mappings.index import MappingIndex, build_index
from services.mappings.model import Mapping, parse
from simulator.cards import A10_INTERFACE, NLB0

NAMESPACE = "default"
FUNCTION = "arria10.dcp1.0-nlb0-orchestrated"

SIZES = {
    "small": (1, 10, 3),
    "medium": (3, 30, 8),
    "large-env": (6, 120, 18),
    "annotations": (1, 10, 54),
}
"""Name → containers, env variables per container, kilobytes of annotations."""


def different(body: bytes, number: int) -> list[bytes]:
    """Make this number of reviews from one; no two pods have a name, label or value in common."""
    return [_varied(json.loads(body), each) for each in range(number)]


def _varied(whole: dict[str, Any], number: int) -> bytes:
    """A review with its own names, labels, env and quantities (1 to 3 units)."""
    request = whole["request"]
    pod = request["object"]
    request["uid"] = str(uuid.UUID(int=number))
    request["name"] = pod["metadata"]["name"] = f"pod-{number}"
    pod["metadata"].setdefault("labels", {})["number"] = f"{number}"
    for key in pod["metadata"].get("annotations", {}):
        pod["metadata"]["annotations"][key] += f"{number:04}"
    for container in pod["spec"]["containers"]:
        container["name"] = f"{container['name']}-{number}"
        for variable in container.get("env", []):
            variable["name"] = f"{variable['name']}_{number}"
        for asked in container.get("resources", {}).values():
            asked.update({key: f"{1 + number % 3}" for key in asked if "fpga" in key})
    return json.dumps(whole, separators=(",", ":")).encode()


def review(size: str) -> bytes:
    """An AdmissionReview as an API server sends it, whose pod asks for two units of a function."""
    containers, variables, kilobytes = SIZES[size]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": size,
            "namespace": NAMESPACE,
            "labels": {"app": size},
            "annotations": {f"example.com/k{n}": "v" * 1000 for n in range(kilobytes)},
            "managedFields": [{"manager": "bench", "operation": "Update", "apiVersion": "v1"}],
        },
        "spec": {
            "containers": [
                _container(f"c{number}", variables, asks=number == 0)
                for number in range(containers)
            ],
            "restartPolicy": "Never",
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        },
        "status": {},
    }
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {
        "uid": "0a5cbe2c-7a4c-4c7b-8a32-9a3c8d3f3c10",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": kind,
        "name": size,
        "namespace": NAMESPACE,
        "operation": "CREATE",
        "userInfo": {"username": "bench", "groups": ["system:authenticated"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    whole = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(whole, separators=(",", ":")).encode()


def _container(name: str, variables: int, *, asks: bool) -> dict[str, object]:
    container: dict[str, object] = {
        "name": name,
        "image": "registry.example/bench:1",
        "command": ["/bin/bench"],
        "env": [{"name": f"VAR_{n}", "value": f"value {n}"} for n in range(variables)],
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
    }
    if asks:
        asked = {f"fpga.intel.com/{FUNCTION}": "2"}
        container["resources"] = {"limits": asked, "requests": asked}
    return container


def index(count: int, namespaces: int = 1, kinds: int = 1) -> MappingIndex:
    """An index of mappings; the reviews ask for the first one.

    `kinds` is 1 for AcceleratorFunctions alone, 3 for as many FpgaRegions and Accelerators.
    """
    mappings = [_mapping(NAMESPACE, FUNCTION, NLB0)]
    for number in range(1, count):
        place = number % namespaces
        namespace = NAMESPACE if place == 0 else f"team-{place}"
        afu = hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()
        if (kind := number % kinds) == 0:
            mappings.append(_mapping(namespace, f"function-{number}", afu))
        else:
            mappings.append(_other_mapping(namespace, number, afu, region=kind == 1))
    return build_index(mappings)


def _mapping(namespace: str, name: str, afu: str) -> Mapping:
    return parse(
        {
            "apiVersion": "fpga.intel.com/v2",
            "kind": "AcceleratorFunction",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"interfaceId": A10_INTERFACE, "afuId": afu, "mode": "region"},
        }
    )


def _other_mapping(namespace: str, number: int, interface: str, *, region: bool) -> Mapping:
    """An FpgaRegion, or an Accelerator with all that pods may get with it."""
    spec: dict[str, Any] = {"interfaceId": interface}
    if not region:
        spec = {
            "target": {"resource": f"vendor.example/device-{number}"},
            "env": [{"name": "TIER", "value": "small"}],
            "nodeSelector": {"vendor.example/product": "x"},
            "tolerations": [{"key": "vendor.example/x", "effect": "NoSchedule"}],
        }
    return parse(
        {
            "apiVersion": "fpga.intel.com/v2" if region else "accelbind.dev/v1alpha1",
            "kind": "FpgaRegion" if region else "Accelerator",
            "metadata": {"name": f"other-{number}", "namespace": namespace},
            "spec": spec,
        }
    )
