"""What the webhook would do to the pods of a manifest."""

from dataclasses import dataclass

from services.admission.mutate import Decision, Policy, Refused, mutate
from services.mappings.index import MappingIndex
from services.pods.manifests import FoundPod
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
    found: FoundPod, index: MappingIndex, policy: Policy, *, namespace: str | None
) -> Explained:
    """Return what the webhook would do to a pod.

    `namespace` is that of pods that name none; None means `default`.

    Raises:
        InvalidManifest: the pod can't be read, or names another namespace.
    """
    if namespace is not None and found.namespace not in (None, "", namespace):
        raise InvalidManifest(
            f"{found.label} is of namespace {plain(found.namespace or '')}, not of {namespace}"
        )
    used = found.namespace or namespace or "default"
    try:
        result = mutate(found.pod, index.namespace(used), policy, policy.shared(index))
    except InvalidReview as error:
        raise InvalidManifest(f"{found.label}: {error}") from error
    return Explained(found, used, result)
