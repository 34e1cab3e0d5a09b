"""What the webhook would do to the pods of a manifest."""

import copy
import json
from dataclasses import dataclass

import jsonpatch

from services.admission.guard import guard
from services.admission.mutate import Decision, Patched, Policy, Refused, mutate
from services.mappings.index import MappingIndex
from services.pods.manifests import FoundPod, Object
from services.pods.pod import decode_pod
from services.process.errors import InvalidManifest, InvalidReview
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
    found: FoundPod,
    index: MappingIndex,
    policy: Policy,
    *,
    namespace: str | None,
    default: str = "default",
) -> Explained:
    """Return what the webhook would do to a pod, in a guarded namespace if `policy` has a guard.

    A pod that names no namespace is of `namespace`, or if that is None, of `default`.

    Raises:
        InvalidManifest: the pod can't be read, or names another namespace.
    """
    if namespace is not None and found.namespace not in (None, "", namespace):
        raise InvalidManifest(
            f"{found.label} is of namespace {plain(found.namespace or '')}, not of {namespace}"
        )
    used = found.namespace or namespace or default
    try:
        result = _decide(found, index, policy, used)
    except InvalidReview as error:
        raise InvalidManifest(f"{found.label}: {error}") from error
    return Explained(found, used, result)


def mutated_manifest(manifest: Object, result: Patched) -> Object:
    """Return a pod's manifest after its patch."""
    after: Object = jsonpatch.apply_patch(copy.deepcopy(manifest), result.operations)
    return after


def _decide(found: FoundPod, index: MappingIndex, policy: Policy, namespace: str) -> Decision:
    mappings, shared = index.namespace(namespace), policy.shared(index)
    result = mutate(found.pod, mappings, policy, shared)
    if not policy.guard or isinstance(result, Refused):
        return result
    pod = found.pod
    if isinstance(result, Patched):
        pod = decode_pod(json.dumps(mutated_manifest(found.manifest, result)).encode())
    return guard(pod, mappings, policy, shared) or result
