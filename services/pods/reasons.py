"""Reasons and outcomes of answers to reviews: labels of metrics, notes in audit logs."""

from enum import StrEnum
from typing import Self


class ReviewOutcome(StrEnum):
    """How a request was answered; the values are metric labels."""

    ALLOWED = "allowed"
    """Admitted unchanged."""
    PATCHED = "patched"
    """Admitted with a JSON patch; it has no reason."""
    DENIED = "denied"
    """Refused: the object must be changed."""
    ERRORED = "errored"
    """Refused, because the review couldn't be evaluated."""
    REJECTED = "rejected"
    """Not reviewed: answered with 4xx or 503 and a Status."""

    __hash__ = str.__hash__  # Enum.__hash__ is Python code, and each review is counted


class ReviewReason(StrEnum):
    """Why a review was answered so. The values are metric labels: they never change."""

    about: str
    """`pod` or `mapping`; `request` if the body was not reviewed."""
    outcome: ReviewOutcome

    def __new__(cls, reason: str, about: str, outcome: ReviewOutcome) -> Self:
        """A reason of answers about an object, which have an outcome."""
        member = str.__new__(cls, reason)
        member._value_ = reason
        member.about, member.outcome = about, outcome
        return member

    NOTHING_ASKED = "nothing-asked", "pod", ReviewOutcome.ALLOWED
    """It requests none of accelbind's resources."""
    ALREADY_PHYSICAL = "already-physical", "pod", ReviewOutcome.ALLOWED
    """It requests physical names that its namespace maps."""
    UNKNOWN_NAME = "unknown-name", "pod", ReviewOutcome.DENIED
    """The pod requests a name that its namespace doesn't map."""
    UNUSABLE_MAPPING = "unusable-mapping", "pod", ReviewOutcome.DENIED
    """The mapping of a requested name can't be used."""
    UNMAPPED_RESOURCE = "unmapped-resource", "pod", ReviewOutcome.DENIED
    """The pod requests a physical name that no mapping of its namespace resolves to."""
    INVALID_QUANTITY = "invalid-quantity", "pod", ReviewOutcome.DENIED
    """A quantity isn't a whole number of units."""
    REQUESTS_DIFFER = "requests-differ", "pod", ReviewOutcome.DENIED
    """Requests and limits of a container differ."""
    TOO_MANY_UNITS = "too-many-units", "pod", ReviewOutcome.DENIED
    """More units than `--max-units`."""
    TOO_MANY_CLAIMS = "too-many-claims", "pod", ReviewOutcome.DENIED
    """The names of the pod stand for more than 16 claims together."""
    POD_RESOURCES = "pod-resources", "pod", ReviewOutcome.DENIED
    """The pod requests an accelerator in its own resources, not in those of a container."""
    MIXED_MODES = "mixed-modes", "pod", ReviewOutcome.DENIED
    """A container requests resources of different modes, but a node runs one mode."""
    ENV_NOT_ALLOWED = "env-not-allowed", "pod", ReviewOutcome.DENIED
    """A container sets variables that only accelbind may set to values that no mapping allows."""
    TOO_MUCH_ADDED = "too-much-added", "pod", ReviewOutcome.DENIED
    """The mappings of all names that the pod requests would add too much to it."""
    MAPPINGS_CONFLICT = "mappings-conflict", "pod", ReviewOutcome.DENIED
    """The mappings of two names, or a mapping and the pod, contradict each other."""
    SHARED_DEVICE = "shared-device", "pod", ReviewOutcome.DENIED
    """Containers that would share a device need different functions in it."""
    GUARDED_RESOURCE = "guarded-resource", "pod", ReviewOutcome.DENIED
    """A container has more of a guarded resource than its names stand for."""
    GUARDED_SELECTOR = "guarded-selector", "pod", ReviewOutcome.DENIED
    """The pod lacks the node selector of a name that its guarded resources come from."""
    NOT_A_POD = "not-a-pod", "pod", ReviewOutcome.ALLOWED
    """The review is about another kind, which is admitted."""
    NOT_CREATED = "not-created", "pod", ReviewOutcome.ALLOWED
    """The pod is not being created, so it is admitted."""
    NOT_MUTATED = "not-mutated", "pod", ReviewOutcome.DENIED
    """At `/validate` the pod would still have to change, so it is denied."""
    MIRROR_POD = "mirror-pod", "pod", ReviewOutcome.ALLOWED
    """A kubelet shows a static pod, which webhooks can't change, so it is admitted."""
    UNREADABLE_POD = "unreadable-pod", "pod", ReviewOutcome.ERRORED
    """The review has no pod, or the pod can't be read."""
    WITHIN_NAMES = "within-names", "pod", ReviewOutcome.ALLOWED
    """At `/guard` all guarded resources of the pod come from its names, so it is admitted."""
    NOTHING_GUARDED = "nothing-guarded", "pod", ReviewOutcome.DENIED
    """`/guard` is called, but `--guard` is not set, so the pod is denied."""
    INTERNAL_ERROR = "internal-error", "pod", ReviewOutcome.ERRORED
    """An error in accelbind itself; its log has the traceback."""
    INVALID_REVIEW = "invalid-review", "request", ReviewOutcome.REJECTED
    """The body is no AdmissionReview of v1 with a uid (400)."""
    TOO_LARGE = "too-large", "request", ReviewOutcome.REJECTED
    """The body is larger than `--max-body` (413)."""
    LENGTH_REQUIRED = "length-required", "request", ReviewOutcome.REJECTED
    """The body comes in chunks, without a `Content-Length` (411)."""
    CONTENT_TYPE = "content-type", "request", ReviewOutcome.REJECTED
    """The body isn't `application/json` (415)."""
    CONTENT_ENCODING = "content-encoding", "request", ReviewOutcome.REJECTED
    """The body is compressed (415)."""
    NOT_LOADED = "not-loaded", "request", ReviewOutcome.REJECTED
    """The mappings aren't loaded yet, and the answer depends on them (503)."""
    OVERLOADED = "overloaded", "request", ReviewOutcome.REJECTED
    """The body is larger than 64 KiB, and large ones of other clients are unfinished (503)."""
    NOT_A_MAPPING = "not-a-mapping", "mapping", ReviewOutcome.ALLOWED
    """The review is about another kind, which is admitted."""
    NOT_WRITTEN = "not-written", "mapping", ReviewOutcome.ALLOWED
    """The mapping is neither created nor changed, so it is admitted."""
    BEING_DELETED = "being-deleted", "mapping", ReviewOutcome.ALLOWED
    """The mapping is being deleted, so it is admitted."""
    USABLE = "usable", "mapping", ReviewOutcome.ALLOWED
    """Pods can use it."""
    UNCHANGED_SPEC = "unchanged-spec", "mapping", ReviewOutcome.ALLOWED
    """The update leaves the spec unchanged, so it is admitted even if pods can't use it."""
    INVALID_MAPPING = "invalid-mapping", "mapping", ReviewOutcome.DENIED
    """Pods can't use it, because an ID, a mode or a name is wrong."""
    NAME_CLASH = "name-clash", "mapping", ReviewOutcome.DENIED
    """The other kind has the name already in this namespace."""
    UNREADABLE_MAPPING = "unreadable-mapping", "mapping", ReviewOutcome.ERRORED
    """The review has no mapping, or the mapping can't be read."""

    __hash__ = str.__hash__  # as above
