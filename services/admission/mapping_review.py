"""AdmissionReviews of mappings: what no pod could use is refused where it is made.

`validate` looks at an AcceleratorFunction or FpgaRegion that is created or changed: whether it can
serve at all, and whether the namespace has the name already, in the other kind. It warns of what
is fine but odd. `note` answers a mutating webhook: it writes down the physical resource in an
annotation, which people see in ``kubectl get``.

Nobody is locked out: an update that leaves the spec as it is passes whatever the spec says, and so
do deletion and what leads to it. Two objects of one name that are created in the same instant both
pass; then neither of them serves, which `services.mappings.index` sees to.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import msgspec

from services.admission import review as reviews
from services.admission.mutate import MAX_WARNING
from services.admission.patch import Operation, escaped
from services.admission.review import (
    INTERNAL_ERROR,
    Review,
    ReviewOutcome,
    ReviewResponse,
    UnreadableReview,
)
from services.mappings.index import MappingIndex, NamespaceMappings, clash
from services.mappings.model import ACCELERATOR_FUNCTION, FPGA_REGION, KINDS, Mapping, label, parse
from services.names import DOMAIN
from services.process.errors import InvalidMapping
from services.process.text import clip, plain

RESOURCE = "accelbind.dev/resource"
"""The annotation of a mapping that tells its physical resource name."""

NOT_A_MAPPING = "not-a-mapping"
"""Reason: the review is of something else, which is admitted."""
NOT_WRITTEN = "not-written"
"""Reason: the mapping is neither created nor changed, so it is admitted."""
BEING_DELETED = "being-deleted"
"""Reason: it is on its way out, so it is admitted."""
USABLE = "usable"
"""Reason: pods can use it."""
UNCHANGED_SPEC = "unchanged-spec"
"""Reason: the update leaves its spec as it is, so it is admitted whatever that says."""
INVALID_MAPPING = "invalid-mapping"
"""Reason: no pod could use it: an id, a mode or a name is wrong."""
NAME_CLASH = "name-clash"
"""Reason: the namespace has the name already, in the other kind."""
UNREADABLE_MAPPING = "unreadable-mapping"
"""Reason: there is no mapping in the review, or none that can be read."""

COMPARED = 1024
"""How many mappings to the same resource are looked at for one that stands for the same."""

_OTHER_KIND = {ACCELERATOR_FUNCTION: FPGA_REGION, FPGA_REGION: ACCELERATOR_FUNCTION}
_GENERATED = "00000"  # what the API server appends to generateName has five characters too
_MAX_GENERATED = 58  # of generateName that the API server keeps
_NOTE_PATH = f"/metadata/annotations/{escaped(RESOURCE)}"

Object: TypeAlias = dict[str, Any]


class _Change(NamedTuple):
    """A mapping as it is to be, and as it was."""

    new: Object
    old: Object | None


class _Request(msgspec.Struct, rename={"new": "object", "old": "oldObject"}):
    new: Object | None = None
    old: Object | None = None


class _Envelope(msgspec.Struct):
    request: _Request


_DECODER = msgspec.json.Decoder(_Envelope)


def validate(body: bytes, index: MappingIndex) -> ReviewResponse:
    """Answer the review of a validating webhook.

    Args:
        body: the request's body.
        index: the mappings of all namespaces, as they are now.

    Raises:
        InvalidReview: there is nothing in the body to answer with a review.
    """
    review = reviews.decode(body)
    try:
        found = _written(review, body)
        return found if isinstance(found, ReviewResponse) else _judge(review, found, index)
    except Exception as error:  # noqa: BLE001 - a crash must answer a denial; the caller logs it
        return _crashed(review, error)


def note(body: bytes) -> ReviewResponse:
    """Answer the review of a mutating webhook; what can't serve is left for `validate` to refuse.

    Raises:
        InvalidReview: there is nothing in the body to answer with a review.
    """
    review = reviews.decode(body)
    try:
        found = _written(review, body)
        return found if isinstance(found, ReviewResponse) else _annotate(review, found)
    except Exception as error:  # noqa: BLE001 - as above
        return _crashed(review, error)


def _written(review: Review, body: bytes) -> _Change | ReviewResponse:
    """Return the mapping that is created or changed; an answer if there is nothing to judge."""
    if review.kind.group != DOMAIN or review.kind.kind not in KINDS:
        if isinstance(review, UnreadableReview) and review.is_about_pod:
            return _unreadable(review, review.problem)
        return _admit(review, NOT_A_MAPPING)
    if review.operation not in ("CREATE", "UPDATE") or review.sub_resource:
        return _admit(review, NOT_WRITTEN)
    return _read(review, body)


def _read(review: Review, body: bytes) -> _Change | ReviewResponse:
    try:
        request = _DECODER.decode(body).request
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return _unreadable(review, f"the mapping can't be read: {error}")
    if request.new is None:
        return _unreadable(review, "the review has no mapping in request.object")
    metadata = request.new.get("metadata")
    if isinstance(metadata, dict):
        if metadata.get("deletionTimestamp"):
            return _admit(review, BEING_DELETED)
        metadata["namespace"] = review.namespace
        if not metadata.get("name") and isinstance(metadata.get("generateName"), str):
            metadata["name"] = metadata["generateName"][:_MAX_GENERATED] + _GENERATED
    return _Change(request.new, request.old)


def _judge(review: Review, change: _Change, index: MappingIndex) -> ReviewResponse:
    mappings = index.namespace(review.namespace)
    try:
        mapping = parse(change.new)
    except InvalidMapping as error:
        return _object_to(review, change, INVALID_MAPPING, str(error))
    if _clashes(mapping, mappings):
        other = label(_OTHER_KIND[mapping.kind], mapping.namespace, mapping.name)
        message = (
            f"{mapping.label}: {other} has that name, and nobody could tell which of them a pod "
            "means, so neither could be used: choose another name, or delete the other one first "
            "(and try again in a moment, if you just did)"
        )
        return _object_to(review, change, NAME_CLASH, message)
    warnings = tuple(clip(text, MAX_WARNING) for text in _oddities(mapping, mappings))
    return _admit(review, USABLE, warnings, mapping.name)


def _object_to(review: Review, change: _Change, reason: str, message: str) -> ReviewResponse:
    """Refuse an object, unless it was no better before."""
    name = _name(change.new)
    if change.old is not None and change.old.get("spec") == change.new.get("spec"):
        warning = clip(f"pods can't use it: {message}", MAX_WARNING)
        return _admit(review, UNCHANGED_SPEC, (warning,), name)
    audit = {"reason": reason}
    return ReviewResponse(
        reviews.denied(review.uid, message, audit=audit),
        review.uid,
        ReviewOutcome.DENIED,
        reason,
        review.namespace,
        name,
        message,
    )


def _clashes(mapping: Mapping, mappings: NamespaceMappings) -> bool:
    """Tell whether the other kind has the name, in an object that could serve."""
    known = mappings.by_name.get(mapping.name)
    if known is not None:
        return known.kind != mapping.kind
    return mappings.rejected.get(mapping.name) == clash(mapping.namespace, mapping.name)


def _oddities(mapping: Mapping, mappings: NamespaceMappings) -> Iterator[str]:
    """Yield what is odd about a mapping that can serve."""
    reason = mappings.rejected.get(mapping.name, "")
    other = label(_OTHER_KIND[mapping.kind], mapping.namespace, mapping.name)
    if reason.startswith(f"{other}:"):
        yield f"neither can be used once this one is mended: {reason}"
    if mapping.deprecated is not None:
        advice = plain(mapping.deprecated)
        yield f"deprecated, so pods that use it are warned{advice and ': '}{advice}"
    else:
        twin = mappings.twin_of(mapping, limit=COMPARED)
        if twin is not None:
            yield f"duplicate: {plain(twin.name)} is the same; pods that use either are warned"


def _annotate(review: Review, change: _Change) -> ReviewResponse:
    try:
        mapping = parse(change.new)
    except InvalidMapping as error:
        return _admit(review, INVALID_MAPPING, (), "", str(error))
    annotations = change.new["metadata"].get("annotations")
    if not isinstance(annotations, dict):
        operation = _add("/metadata/annotations", {RESOURCE: mapping.resource})
    elif annotations.get(RESOURCE) != mapping.resource:
        operation = _add(_NOTE_PATH, mapping.resource)
    else:
        return _admit(review, USABLE, (), mapping.name)
    return ReviewResponse(
        reviews.patched(review.uid, [operation]),
        review.uid,
        ReviewOutcome.PATCHED,
        "",
        review.namespace,
        mapping.name,
    )


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _name(obj: Object) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _admit(
    review: Review, reason: str, warnings: tuple[str, ...] = (), name: str = "", message: str = ""
) -> ReviewResponse:
    return ReviewResponse(
        reviews.allowed(review.uid, warnings),
        review.uid,
        ReviewOutcome.ALLOWED,
        reason,
        review.namespace,
        name,
        message,
        warnings=warnings,
    )


def _unreadable(review: Review, problem: str) -> ReviewResponse:
    message = plain(problem, 500)
    audit = {"reason": UNREADABLE_MAPPING}
    return ReviewResponse(
        reviews.errored(review.uid, message, code=400, audit=audit),
        review.uid,
        ReviewOutcome.ERRORED,
        UNREADABLE_MAPPING,
        review.namespace,
        message=message,
    )


def _crashed(review: Review, error: Exception) -> ReviewResponse:
    message = "accelbind failed while judging this mapping; its log says why, and so do its metrics"
    return ReviewResponse(
        reviews.errored(review.uid, message, audit={"reason": INTERNAL_ERROR}),
        review.uid,
        ReviewOutcome.ERRORED,
        INTERNAL_ERROR,
        review.namespace,
        message=message,
        error=error,
    )
