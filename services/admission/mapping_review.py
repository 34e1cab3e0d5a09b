"""AdmissionReviews of mappings: an object that pods can't use is refused when it is written."""

from collections.abc import Iterator
from typing import Final

import msgspec

from services.admission import review as reviews
from services.admission.accelerators import logical_target
from services.admission.mutate import Policy
from services.admission.pod_warnings import MAX_WARNING
from services.admission.review import Review, ReviewResponse, UnreadableReview, admit, decode, deny
from services.mappings.index import MappingIndex, NamespaceMappings, clash
from services.mappings.kinds import TABLE, Family
from services.mappings.model import DEPRECATED, Mapping, parse
from services.pods.reasons import ReviewReason
from services.process.errors import InvalidMapping
from services.process.json import UNREADABLE
from services.process.text import clip, plain

# Lists within lists take 50 times as much memory. The schemas allow 110 KiB.
MAX_SPEC: Final = 256 * 1024
"""Bytes of a spec that is decoded."""


class _Annotations(msgspec.Struct, rename={"deprecated": DEPRECATED}):
    deprecated: str | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None  # an API server generates it before it validates
    annotations: _Annotations | None = None
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct, rename="camel"):
    """The fields of a mapping that matter; all others are skipped."""

    metadata: _Metadata | None = None
    spec: msgspec.Raw = msgspec.Raw(b"null")
    api_version: str | None = None
    kind: str | None = None

    def parse(self, namespace: str) -> Mapping:
        """Read the mapping; raises as `services.mappings.model.parse`."""
        metadata = self.metadata or _Metadata()
        note = metadata.annotations.deprecated if metadata.annotations else None
        annotations = {DEPRECATED: note}
        identity = {"name": metadata.name, "namespace": namespace, "annotations": annotations}
        return parse(
            {
                "apiVersion": self.api_version,
                "kind": self.kind,
                "metadata": identity,
                "spec": self._spec(f"{self.kind} {plain(namespace)}/{plain(metadata.name or '')}"),
            }
        )

    def _spec(self, owner: str) -> object:
        if len(bytes(self.spec)) > MAX_SPEC:
            raise InvalidMapping(f"{owner}: spec has more than {MAX_SPEC} bytes")
        try:
            return msgspec.json.decode(self.spec)
        except UNREADABLE as error:
            raise InvalidMapping(f"{owner}: spec can't be read: {error}") from error


class _Change(msgspec.Struct, rename={"new": "object", "old": "oldObject"}):
    new: _Object
    old: _Object | None = None


class _Envelope(msgspec.Struct):
    request: _Change


_DECODER = msgspec.json.Decoder(_Envelope)


def validate(body: bytes, index: MappingIndex, policy: Policy) -> ReviewResponse:
    """Refuse what pods can't use; warn of duplicates and deprecated mappings.

    Raises:
        InvalidReview: the body isn't a review, or has no uid to answer to.
    """
    review = decode(body)
    try:
        change = _read_change(review, body)
        if isinstance(change, ReviewResponse):
            return change
        return _evaluate(review, change, index.namespace(review.namespace), policy)
    except Exception as error:  # noqa: BLE001 - a crash must answer a denial; the caller logs it
        return reviews.fail(review, error)


def _read_change(review: Review, body: bytes) -> _Change | ReviewResponse:
    """Return the mapping that is created or changed, or an answer if there is nothing to check."""
    kind = TABLE.get(review.kind.kind)
    if kind is None or review.kind.group != kind.group:
        if isinstance(review, UnreadableReview) and review.is_about_pod:
            return reviews.unreadable(review, ReviewReason.UNREADABLE_MAPPING, review.problem)
        return admit(review, ReviewReason.NOT_A_MAPPING)
    if review.operation not in ("CREATE", "UPDATE") or review.sub_resource:
        return admit(review, ReviewReason.NOT_WRITTEN)
    try:
        change = _DECODER.decode(body).request
    except UNREADABLE as error:
        problem = f"the mapping can't be read: {error}"
        return reviews.unreadable(review, ReviewReason.UNREADABLE_MAPPING, problem)
    # Controllers must be able to remove the finalizers, whatever the spec is.
    if change.new.metadata is not None and change.new.metadata.deletion_timestamp:
        return admit(review, ReviewReason.BEING_DELETED)
    return change


def _evaluate(
    review: Review, change: _Change, mappings: NamespaceMappings, policy: Policy
) -> ReviewResponse:
    try:
        mapping = change.new.parse(review.namespace)
    except InvalidMapping as error:
        return _object_to(review, change, ReviewReason.INVALID_MAPPING, str(error))
    logical = logical_target(mapping, policy.prefixes)
    if logical is not None:
        message = f"{mapping.label}: {logical} is a logical name itself, which nothing rewrites"
        return _object_to(review, change, ReviewReason.INVALID_MAPPING, message)
    if _clashes(mapping, mappings):
        message = (
            f"{clash(mapping.namespace, mapping.name)}, or delete the other one first (if you just"
            " did, try again in a moment)"
        )
        return _object_to(review, change, ReviewReason.NAME_CLASH, message)
    warnings = tuple(clip(text, MAX_WARNING) for text in _warnings(mapping, mappings))
    return admit(review, ReviewReason.USABLE, warnings=warnings)


def _object_to(review: Review, change: _Change, reason: str, message: str) -> ReviewResponse:
    """Refuse an object, unless its spec was the same before."""
    # Labels of an old object can be changed. An API server writes equal specs in the same way.
    if change.old is not None and bytes(change.old.spec) == bytes(change.new.spec):
        warning = clip(f"pods can't use it: {message}", MAX_WARNING)
        return admit(review, ReviewReason.UNCHANGED_SPEC, warnings=(warning,))
    return deny(review, reason, message)


def _clashes(mapping: Mapping, mappings: NamespaceMappings) -> bool:
    """Whether a usable object of the other kind of its family has the name."""
    if mapping.family is Family.ACCELERATOR:
        return False
    # Two that are created at the same moment both pass here, and neither is served.
    known = mappings.by_name.get(mapping.name)
    if known is not None:
        return known.kind != mapping.kind
    return mappings.rejected.get(mapping.name) == clash(mapping.namespace, mapping.name)


def _warnings(mapping: Mapping, mappings: NamespaceMappings) -> Iterator[str]:
    """Yield the warnings about a mapping that pods can use."""
    if mapping.deprecated is not None:
        advice = plain(mapping.deprecated)
        yield f"deprecated: pods that use it get a warning{advice and ': '}{advice}"
    else:
        twin = mappings.twin_of(mapping)
        if twin is not None:
            yield f"duplicate of {plain(twin.name)}: pods that use either get a warning"
