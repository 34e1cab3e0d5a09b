"""The webhook's decisions about the pods of a manifest."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import jsonpatch

from services.admission.guard import guard
from services.admission.mutate import Decision, Patched, Policy, Refused, mutate
from services.mappings.index import MappingIndex
from services.pods.manifests import FoundPod
from services.pods.pod import ContainerRef, decode_pod
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.pods.requests import read_count, requesting_containers
from services.process.errors import InvalidManifest, InvalidReview
from services.process.objects import Object
from services.process.text import plain


@dataclass(frozen=True, slots=True)
class Explained:
    """A pod and what the webhook would do to it."""

    found: FoundPod
    namespace: str
    result: Decision

    @property
    def is_refused(self) -> bool:
        """Whether it would be refused."""
        return isinstance(self.result, Refused)


def explain_pod(
    found: FoundPod, index: MappingIndex, policy: Policy, *, namespace: str
) -> Explained:
    """Return what the webhook would do to a pod, in a guarded namespace if `policy` has a guard.

    Raises:
        InvalidManifest: the pod can't be read.
    """
    try:
        result = _decide(found, index, policy, namespace)
    except InvalidReview as error:
        raise InvalidManifest(f"{found.label}: {error}") from error
    return Explained(found, namespace, result)


def mutated_manifest(manifest: Object, result: Patched) -> Object:
    """Return a pod's manifest after its patch."""
    after: Object = jsonpatch.apply_patch(copy.deepcopy(manifest), result.operations)
    return after


def _decide(found: FoundPod, index: MappingIndex, policy: Policy, namespace: str) -> Decision:
    mappings, shared = index.namespace(namespace), policy.shared(index)
    result = mutate(found.pod, mappings, policy, shared)
    if isinstance(result, Refused):
        return result
    if refused := _of_api_server(found, policy):
        return refused
    if not policy.guard:
        return result
    pod = found.pod
    if isinstance(result, Patched):
        pod = decode_pod(json.dumps(mutated_manifest(found.manifest, result)).encode())
    return guard(pod, mappings, policy, shared) or result


_POD_RESOURCES: Final = "where Kubernetes allows CPU, memory and huge pages only"
_FOR_PODS: Final = ("cpu", "memory")


def _of_api_server(found: FoundPod, policy: Policy) -> Refused | None:
    """Return why the API server refuses the extended resources of a pod that the webhook admits.

    It calls no webhook for most of them: https://kubernetes.io/docs/tasks/configure-pod-container/extended-resource/
    """
    refusals = Refusals()
    for place, why, key in _misplaced(found.manifest.get("spec")):
        message = f"{plain(key)} is in {place}, {why}: request it in a container"
        refusals.add(ReviewReason.POD_RESOURCES, None, message)
    for ref in requesting_containers(found.pod, ("",)):
        for key in _keys(ref):
            if _is_extended(key) and not key.startswith(policy.prefixes):
                read_count(ref, key, refusals)
    return Refused(tuple(refusals.listed)) if refusals.listed else None


def _keys(ref: ContainerRef) -> list[str]:
    resources = ref.container.resources
    parts = (resources.limits, resources.requests) if resources else ()
    return [*dict.fromkeys(key for quantities in parts for key in quantities or ())]


def _misplaced(spec: object) -> Iterator[tuple[str, str, str]]:
    """Yield the resources with a domain that no container requests: where, why not, and which."""
    resources = _part(spec, "resources")
    for key in _keys_of(resources):
        if key not in _FOR_PODS and not key.startswith("hugepages-"):
            yield "spec.resources", _POD_RESOURCES, key
    if resources.get("claims"):
        yield "spec.resources", _POD_RESOURCES, "claims"
    for key in _with_domain({"limits": _part(spec, "overhead")}):
        yield "spec.overhead", "which only a RuntimeClass sets", key
    debugging = spec.get("ephemeralContainers") if isinstance(spec, dict) else None
    for number, container in enumerate(debugging if isinstance(debugging, list) else ()):
        for key in _with_domain(_part(container, "resources")):
            place = f"spec.ephemeralContainers[{number}].resources"
            yield place, "and such containers can't have resources", key


def _with_domain(resources: Object) -> list[str]:
    return [key for key in _keys_of(resources) if "/" in key]


def _keys_of(resources: Object) -> list[str]:
    return [*dict.fromkeys((*_part(resources, "limits"), *_part(resources, "requests")))]


def _is_extended(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def _part(value: object, name: str) -> Object:
    part = value.get(name) if isinstance(value, dict) else None
    return part if isinstance(part, dict) else {}
