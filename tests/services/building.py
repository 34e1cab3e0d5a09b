"""Pods and mappings for the tests of the domain, as plain objects that JSON knows."""

import copy
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import jsonpatch

from services.admission.mutate import Patched, Policy, Refused, Unchanged, mutate
from services.mappings.index import MappingIndex, build_index
from services.mappings.model import Rejected, parse
from services.pods.pod import Pod, decode_pod

Object: TypeAlias = dict[str, Any]

ARRIA = "ce48969398f05f33946d560708be108a"
STRATIX = "bfac4d851ee856fe8c95865ce1bbaa2d"
NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
NLB3 = "f7df405cbd7acf7222f144b0b93acd18"

REGION = f"fpga.intel.com/region-{ARRIA}"
STRATIX_REGION = f"fpga.intel.com/region-{STRATIX}"
AF_NLB0 = "fpga.intel.com/af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
AF_STRATIX_NLB3 = "fpga.intel.com/af-bfa.f7d.v6xNhR7oVv6MlYZc4buqLfffQFy9es9yIvFEsLk6zRg"


def function(
    name: str, mode: str, *, interface: str = ARRIA, afu: str = NLB0, namespace: str | None = None
) -> Object:
    """An AcceleratorFunction."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "AcceleratorFunction",
        "metadata": metadata,
        "spec": {"afuId": afu, "interfaceId": interface, "mode": mode},
    }


def deprecated(obj: Object, note: object = "use another") -> Object:
    """The same mapping, deprecated."""
    annotations = {"accelbind.dev/deprecated": note}
    return obj | {"metadata": obj["metadata"] | {"annotations": annotations}}


def region(name: str, *, interface: str = ARRIA, namespace: str | None = None) -> Object:
    """An FpgaRegion."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "FpgaRegion",
        "metadata": metadata,
        "spec": {"interfaceId": interface},
    }


def accelerator(
    name: str, resource: str, *, namespace: str | None = None, **spec: object
) -> Object:
    """An Accelerator."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "accelbind.dev/v1alpha1",
        "kind": "Accelerator",
        "metadata": metadata,
        "spec": {"target": {"resource": resource}} | spec,
    }


def index(*objects: Object, rejected: Sequence[Rejected] = ()) -> MappingIndex:
    return build_index([*map(parse, objects), *rejected])


USUAL = (
    function("nlb0", "region"),
    function("nlb3", "region", afu=NLB3),
    function("nlb0-af", "af"),
    function("stratix.nlb3", "region", interface=STRATIX, afu=NLB3),
    function("stratix.nlb3-af", "af", interface=STRATIX, afu=NLB3),
    region("arria-devel"),
    function("secret", "region", afu="0" * 32, namespace="elsewhere"),
)


KNOWN = index(*USUAL)
"""The mappings of most tests."""
ANY = Policy()


def container(
    name: str = "app",
    limits: Object | None = None,
    requests: Object | None = None,
    env: list[Object] | None = None,
    **more: Any,
) -> Object:
    """A container; requests are the same as limits unless given, as the API server has it."""
    built: Object = {"name": name, "image": "registry/app:1"} | more
    if limits is not None:
        built["resources"] = {
            "limits": limits,
            "requests": limits if requests is None else requests,
        }
    if env is not None:
        built["env"] = env
    own: Object = json.loads(json.dumps(built))  # limits and requests are two objects
    return own


def pod(
    *containers: Object, init: Sequence[Object] = (), annotations: Object | None = None
) -> Object:
    metadata: Object = {"name": "p", "namespace": "default", "labels": {"app": "p"}}
    if annotations is not None:
        metadata["annotations"] = annotations
    spec: Object = {"containers": list(containers), "restartPolicy": "Always"}
    if init:
        spec["initContainers"] = list(init)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def decode(obj: Object) -> Pod:
    return decode_pod(json.dumps(obj).encode())


def judge(
    obj: Object, known: MappingIndex = KNOWN, policy: Policy = ANY
) -> Unchanged | Patched | Refused:
    return mutate(decode(obj), known.namespace("default"), policy, policy.shared(known))


def apply(obj: Object, result: Patched) -> Object:
    """The pod after the patch, made by a library that knows nothing of ours."""
    operations = json.loads(json.dumps(result.operations))
    patched: Object = jsonpatch.apply_patch(obj, operations)
    return patched


def mutated(obj: Object, known: MappingIndex = KNOWN, policy: Policy = ANY) -> Object:
    """The pod after a patch that must be there, and that leaves nothing for a second pass."""
    result = judge(obj, known, policy)
    assert isinstance(result, Patched), result
    after = apply(obj, result)
    assert isinstance(judge(after, known, policy), Unchanged)
    return after


def refused(obj: Object, known: MappingIndex = KNOWN, policy: Policy = ANY) -> Refused:
    result = judge(obj, known, policy)
    assert isinstance(result, Refused), result
    assert len(result.message) <= 2000
    assert "\n" not in result.message
    return result


def first(obj: Object) -> Any:
    return obj["spec"]["containers"][0]


def note_of(obj: Object) -> Any:
    """What a pod's annotation says was requested."""
    annotations = obj.get("metadata", {}).get("annotations", {})
    return json.loads(annotations.get("accelbind.dev/requested", "{}"))


def with_note(obj: Object, note: object) -> Object:
    """The pod with such an annotation, and no other."""
    annotations = {"accelbind.dev/requested": json.dumps(note)}
    return obj | {"metadata": obj["metadata"] | {"annotations": annotations}}


def set_again(obj: Object, limits: Object, *parts: str) -> Object:
    """The pod after somebody set names in both parts of its first container, or in one."""
    after = copy.deepcopy(obj)
    for part in parts or ("limits", "requests"):
        resources = first(after).setdefault("resources", {})
        resources.setdefault(part, {}).update(limits)
    return after


def pair(number: int, interface: str = ARRIA, afu: str = NLB0) -> list[Object]:
    return [
        {"name": f"FPGA_REGION_{number}", "value": interface},
        {"name": f"FPGA_AFU_{number}", "value": afu},
    ]
