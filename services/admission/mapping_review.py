"""AdmissionReviews of mappings: an object that pods can't use is refused when it is written.

`validate` checks an AcceleratorFunction or FpgaRegion that is created or changed: whether pods can
use it, and whether the other kind has the name already in its namespace. It warns of duplicates
and deprecated mappings. `note` answers a mutating webhook: it writes the physical resource into an
annotation, which ``kubectl get`` shows.

An update that leaves the spec unchanged always passes, and so do deletion and updates of an object
that is being deleted. Two objects of one name that are created at the same moment both pass; then
neither of them is served (`services.mappings.index`).
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from services.admission import review as reviews
from services.admission.patch import Operation, escaped
from services.admission.pod_warnings import MAX_WARNING
from services.admission.review import Review, ReviewResponse, UnreadableReview, admit, decode, deny
from services.mappings.index import MappingIndex, NamespaceMappings, clash
from services.mappings.model import ACCELERATOR_FUNCTION, FPGA_REGION, KINDS, Mapping, label, parse
from services.names import DOMAIN
from services.process.errors import InvalidMapping
from services.process.text import clip, plain

RESOURCE = "accelbind.dev/resource"
"""The annotation of a mapping with its physical resource name."""

NOT_A_MAPPING = "not-a-mapping"
"""Reason: the review is about another kind, which is admitted."""
NOT_WRITTEN = "not-written"
"""Reason: the mapping is neither created nor changed, so it is admitted."""
BEING_DELETED = "being-deleted"
"""Reason: the mapping is being deleted, so it is admitted."""
USABLE = "usable"
"""Reason: pods can use it."""
UNCHANGED_SPEC = "unchanged-spec"
"""Reason: the update leaves the spec unchanged, so it is admitted even if pods can't use it."""
INVALID_MAPPING = "invalid-mapping"
"""Reason: pods can't use it, because an ID, a mode or a name is wrong."""
NAME_CLASH = "name-clash"
"""Reason: the other kind has the name already in this namespace."""
UNREADABLE_MAPPING = "unreadable-mapping"
"""Reason: the review has no mapping, or the mapping can't be read."""

COMPARED = 1024
"""How many mappings to the same resource are compared to find a duplicate."""

_OTHER_KIND = {ACCELERATOR_FUNCTION: FPGA_REGION, FPGA_REGION: ACCELERATOR_FUNCTION}
_GENERATED = "00000"  # the API server appends five characters to generateName
_MAX_GENERATED = 58  # characters of generateName that the API server keeps
_NOTE_PATH = f"/metadata/annotations/{escaped(RESOURCE)}"

Object: TypeAlias = dict[str, Any]


class _Change(msgspec.Struct, rename={"new": "object", "old": "oldObject"}):
    new: Object
    old: Object | None = None


class _Envelope(msgspec.Struct):
    request: _Change


_DECODER = msgspec.json.Decoder(_Envelope)


def validate(body: bytes, index: MappingIndex) -> ReviewResponse:
    """Answer the review of a validating webhook.

    Raises:
        InvalidReview: the body isn't a review, or has no uid to answer to.
    """
    return _answer(
        body, lambda review, change: _evaluate(review, change, index.namespace(review.namespace))
    )


def note(body: bytes) -> ReviewResponse:
    """Answer the review of a mutating webhook; an invalid mapping is left for `validate`.

    Raises:
        InvalidReview: the body isn't a review, or has no uid to answer to.
    """
    return _answer(body, lambda review, change: _annotate(review, change.new))


def _answer(body: bytes, decide: Callable[[Review, _Change], ReviewResponse]) -> ReviewResponse:
    review = decode(body)
    try:
        change = _read_change(review, body)
        return change if isinstance(change, ReviewResponse) else decide(review, change)
    except Exception as error:  # noqa: BLE001 - a crash must answer a denial; the caller logs it
        return reviews.fail(review, error)


def _read_change(review: Review, body: bytes) -> _Change | ReviewResponse:
    """Return the mapping that is created or changed, or an answer if there is nothing to check."""
    if review.kind.group != DOMAIN or review.kind.kind not in KINDS:
        if isinstance(review, UnreadableReview) and review.is_about_pod:
            return reviews.unreadable(review, UNREADABLE_MAPPING, review.problem)
        return admit(review, NOT_A_MAPPING)
    if review.operation not in ("CREATE", "UPDATE") or review.sub_resource:
        return admit(review, NOT_WRITTEN)
    try:
        change = _DECODER.decode(body).request
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        problem = f"the mapping can't be read: {error}"
        return reviews.unreadable(review, UNREADABLE_MAPPING, problem)
    metadata = change.new.get("metadata")
    if isinstance(metadata, dict):
        if metadata.get("deletionTimestamp"):
            return admit(review, BEING_DELETED)
        metadata["namespace"] = review.namespace
        if not metadata.get("name") and isinstance(metadata.get("generateName"), str):
            metadata["name"] = metadata["generateName"][:_MAX_GENERATED] + _GENERATED
    return change


def _evaluate(review: Review, change: _Change, mappings: NamespaceMappings) -> ReviewResponse:
    try:
        mapping = parse(change.new)
    except InvalidMapping as error:
        return _object_to(review, change, INVALID_MAPPING, str(error))
    if _clashes(mapping, mappings):
        other = label(_OTHER_KIND[mapping.kind], mapping.namespace, mapping.name)
        message = (
            f"{mapping.label}: {other} has the same name, so neither could be used: choose another "
            "name, or delete the other object first (if you just did, try again in a moment)"
        )
        return _object_to(review, change, NAME_CLASH, message)
    warnings = tuple(clip(text, MAX_WARNING) for text in _warnings(mapping, mappings))
    return admit(review, USABLE, warnings=warnings)


def _object_to(review: Review, change: _Change, reason: str, message: str) -> ReviewResponse:
    """Refuse an object, unless its spec was the same before."""
    if change.old is not None and change.old.get("spec") == change.new.get("spec"):
        warning = clip(f"pods can't use it: {message}", MAX_WARNING)
        return admit(review, UNCHANGED_SPEC, warnings=(warning,))
    return deny(review, reason, message)


def _clashes(mapping: Mapping, mappings: NamespaceMappings) -> bool:
    """Whether a usable object of the other kind has the name."""
    known = mappings.by_name.get(mapping.name)
    if known is not None:
        return known.kind != mapping.kind
    return mappings.rejected.get(mapping.name) == clash(mapping.namespace, mapping.name)


def _warnings(mapping: Mapping, mappings: NamespaceMappings) -> Iterator[str]:
    """Yield the warnings about a mapping that pods can use."""
    reason = mappings.rejected.get(mapping.name, "")
    other = label(_OTHER_KIND[mapping.kind], mapping.namespace, mapping.name)
    if reason.startswith(f"{other}:"):
        yield f"neither can be used once this one is fixed: {reason}"
    if mapping.deprecated is not None:
        advice = plain(mapping.deprecated)
        yield f"deprecated: pods that use it get a warning{advice and ': '}{advice}"
    else:
        twin = mappings.twin_of(mapping, limit=COMPARED)
        if twin is not None:
            yield f"duplicate of {plain(twin.name)}: pods that use either get a warning"


def _annotate(review: Review, new: Object) -> ReviewResponse:
    try:
        resource = parse(new).resolution.resource
    except InvalidMapping as error:
        return admit(review, INVALID_MAPPING, message=str(error))
    annotations = new["metadata"].get("annotations")
    if not isinstance(annotations, dict):
        path, value = "/metadata/annotations", {RESOURCE: resource}
        operation: Operation = {"op": "add", "path": path, "value": value}
    elif annotations.get(RESOURCE) != resource:
        operation = {"op": "add", "path": _NOTE_PATH, "value": resource}
    else:
        return admit(review, USABLE)
    return reviews.patch(review, [operation])
