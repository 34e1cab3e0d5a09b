"""AdmissionReview v1, sans I/O: bytes in, bytes out.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
`answer` is the whole way of a review, and what the webhook calls. A review that has a uid always
gets an answer that echoes it, whatever else is wrong with it or happens on the way; only bytes
without one raise. The four constructors `allowed`, `patched`, `denied` and `errored` are the only
places where responses are made.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from services.admission.mutate import (
    REASON,
    Patched,
    PodDecision,
    Policy,
    Refused,
    Rewrite,
    Unchanged,
    decide,
)
from services.admission.patch import Operation
from services.mappings.index import MappingIndex
from services.pods.pod import Pod
from services.process.errors import InvalidReview
from services.process.text import listing, plain, quote

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

NOT_A_POD = "not-a-pod"
"""Reason: the review is of something else, which is admitted."""
NOT_CREATED = "not-created"
"""Reason: the pod is not being created, so it is admitted."""
NOT_MUTATED = "not-mutated"
"""Reason: at `/validate` the pod would still have to change, so it is denied."""
UNREADABLE_POD = "unreadable-pod"
"""Reason: there is no pod in the review, or none that can be read."""
INTERNAL_ERROR = "internal-error"
"""Reason: a mistake of accelbind's own; its log has the traceback."""
NO_POD = "the review has no pod in request.object"

_STATUS_REASONS = {400: "BadRequest", 403: "Forbidden", 500: "InternalError"}
_REWRITES_SHOWN = 4


class ReviewOutcome(StrEnum):
    """How a review was answered; the values are metric labels."""

    ALLOWED = "allowed"
    """Admitted as it is."""
    PATCHED = "patched"
    """Admitted with a JSON patch; it has no reason."""
    DENIED = "denied"
    """Refused: the asker has to change something."""
    ERRORED = "errored"
    """Refused, since it couldn't be judged."""

    __hash__ = str.__hash__  # an enum's own is written in Python, and each review is counted


class GroupVersionKind(msgspec.Struct, frozen=True, gc=False):
    """What kind of object a review is about."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Review(msgspec.Struct, gc=False, rename={"sub_resource": "subResource", "pod": "object"}):
    """A review that can be answered.

    Attributes:
        uid: to be echoed.
        kind: what it is about.
        operation: such as ``CREATE``.
        sub_resource: such as ``status``, empty for the object itself.
        namespace: where the object is, or will be.
        pod: the object, read as a pod.
    """

    uid: str
    kind: GroupVersionKind = GroupVersionKind()
    operation: str = ""
    sub_resource: str = ""
    namespace: str = ""
    pod: Pod | None = None

    @property
    def is_about_pod(self) -> bool:
        """Whether the object is a pod, and not a part of one."""
        return self.kind.kind == "Pod" and not self.kind.group and not self.sub_resource


class UnreadableReview(Review):
    """A review whose object can't be read as a pod, which it needn't be.

    Attributes:
        problem: why.
    """

    problem: str = ""


class _Envelope(msgspec.Struct, gc=False, rename="camel"):
    request: Review
    kind: str = ""
    api_version: str = ""


class _AnyRequest(msgspec.Struct, rename="camel"):
    uid: str
    kind: GroupVersionKind = GroupVersionKind()
    operation: str = ""
    sub_resource: str = ""
    namespace: str = ""


class _AnyEnvelope(msgspec.Struct, rename="camel"):
    request: _AnyRequest
    kind: str = ""
    api_version: str = ""


class _UidRequest(msgspec.Struct):
    uid: str


class _UidEnvelope(msgspec.Struct, rename="camel"):
    request: _UidRequest
    kind: str = ""
    api_version: str = ""


class _Status(msgspec.Struct):
    code: int
    message: str
    reason: str
    status: str = "Failure"


class _Response(msgspec.Struct, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch_type: str | None = None
    patch: bytes | None = None  # msgspec writes bytes as base64, as the API wants them
    warnings: Sequence[str] = ()
    audit_annotations: Mapping[str, str] | None = None


class _Reply(msgspec.Struct, rename="camel"):
    response: _Response
    kind: str = KIND
    api_version: str = API_VERSION


class ReviewResponse(msgspec.Struct, frozen=True):
    """What to send back, and what to count and log.

    Attributes:
        body: the AdmissionReview to send, as JSON.
        uid: of the review.
        outcome: how it was answered.
        reason: why: a code of `RefusalReason` or `UnchangedReason`, or of this module; empty for
            a patched pod.
        namespace: the pod's.
        pod: its name, or the beginning of it.
        message: what the asker is told, empty if admitted.
        rewrites: what became of logical names.
        warnings: what the asker is warned of.
        error: the exception behind an internal error, for the log.
    """

    body: bytes
    uid: str
    outcome: ReviewOutcome
    reason: str = ""
    namespace: str = ""
    pod: str = ""
    message: str = ""
    rewrites: tuple[Rewrite, ...] = ()
    warnings: tuple[str, ...] = ()
    error: Exception | None = None


_ALLOWED, _PATCHED = ReviewOutcome.ALLOWED, ReviewOutcome.PATCHED
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Envelope)
_ANY_DECODER = msgspec.json.Decoder(_AnyEnvelope)
_UID_DECODER = msgspec.json.Decoder(_UidEnvelope)


def decode(body: bytes) -> Review:
    """Read an AdmissionReview.

    A review of something else than a pod, or of a pod that can't be read, is a review too: only
    its uid is needed to answer it.

    Raises:
        InvalidReview: it is no AdmissionReview of v1 in JSON, or it has no uid.
    """
    try:
        envelope = _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return _decode_leniently(body, str(error))
    _check(envelope.kind, envelope.api_version, envelope.request.uid)
    return envelope.request


def allowed(
    uid: str, warnings: Sequence[str] = (), audit: Mapping[str, str] | None = None
) -> bytes:
    """Return the answer that admits an object as it is.

    Args:
        uid: of the review.
        warnings: for the asker; at most 120 characters each.
        audit: for the audit log; keys without a prefix, the API server adds the webhook's name.
    """
    response = _Response(uid, allowed=True, warnings=warnings, audit_annotations=audit)
    return _ENCODER.encode(_Reply(response))


def patched(
    uid: str,
    operations: Sequence[Operation],
    warnings: Sequence[str] = (),
    audit: Mapping[str, str] | None = None,
) -> bytes:
    """Return the answer that admits an object with these JSON Patch operations.

    Args:
        uid: of the review.
        operations: the patch.
        warnings: for the asker.
        audit: for the audit log.
    """
    response = _Response(
        uid,
        allowed=True,
        patch_type="JSONPatch",
        patch=_ENCODER.encode(operations),
        warnings=warnings,
        audit_annotations=audit,
    )
    return _ENCODER.encode(_Reply(response))


def denied(
    uid: str, message: str, *, code: int = 403, audit: Mapping[str, str] | None = None
) -> bytes:
    """Return the answer that refuses an object.

    Args:
        uid: of the review.
        message: what is wrong; kubectl shows it after ``admission webhook … denied the request: ``.
        code: the HTTP status that the asker gets.
        audit: for the audit log.
    """
    status = _Status(code, message, _STATUS_REASONS.get(code, "Forbidden"))
    response = _Response(uid, allowed=False, status=status, audit_annotations=audit)
    return _ENCODER.encode(_Reply(response))


def errored(
    uid: str, message: str, *, code: int = 500, audit: Mapping[str, str] | None = None
) -> bytes:
    """Return the answer that refuses an object because it couldn't be judged."""
    return denied(uid, message, code=code, audit=audit)


def answer(body: bytes, index: MappingIndex, policy: Policy, *, validating: bool) -> ReviewResponse:
    """Answer a review.

    Args:
        body: the request's body.
        index: the mappings of all namespaces.
        policy: the administrator's.
        validating: whether this is the last check, after all mutation: a pod that would have to
            be changed is refused then.

    Raises:
        InvalidReview: there is nothing in the body to answer with a review.
    """
    review = decode(body)
    try:
        return _review_pod(review, index, policy, validating=validating)
    except InvalidReview as error:
        return _unreadable(review, str(error))
    except Exception as error:  # noqa: BLE001 - a crash must answer a denial; the caller logs it
        message = "accelbind failed while judging this pod; its log says why, and so do its metrics"
        audit = {REASON: INTERNAL_ERROR}
        return ReviewResponse(
            errored(review.uid, message, audit=audit),
            review.uid,
            ReviewOutcome.ERRORED,
            INTERNAL_ERROR,
            review.namespace,
            message=message,
            error=error,
        )


def _decode_leniently(body: bytes, problem: str) -> Review:
    try:
        envelope = _ANY_DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _decode_uid(body, problem)
    request = envelope.request
    _check(envelope.kind, envelope.api_version, request.uid)
    return UnreadableReview(
        request.uid,
        request.kind,
        request.operation,
        request.sub_resource,
        request.namespace,
        problem=f"the review can't be read: {problem}",
    )


def _decode_uid(body: bytes, problem: str) -> Review:
    """Read at least the uid, so that the API server gets an answer that it can use."""
    try:
        envelope = _UID_DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidReview(f"the body can't be read as an {KIND}: {error}") from error
    uid = envelope.request.uid
    _check(envelope.kind, envelope.api_version, uid)
    # Nothing tells what it is about, so it is taken for what these webhooks are sent.
    kind = GroupVersionKind(version="v1", kind="Pod")
    return UnreadableReview(uid, kind, "CREATE", problem=f"the review can't be read: {problem}")


def _check(kind: str, api_version: str, uid: str) -> None:
    if kind != KIND or api_version != API_VERSION:
        raise InvalidReview(
            f"this webhook answers {KIND} of {API_VERSION}, not {quote(kind)} of "
            f"{quote(api_version)}: set admissionReviewVersions to v1 in its configuration"
        )
    if not uid:
        raise InvalidReview(f"the {KIND} has no request.uid to answer to")


def _review_pod(
    review: Review, index: MappingIndex, policy: Policy, *, validating: bool
) -> ReviewResponse:
    if not review.is_about_pod or review.operation != "CREATE":
        return _admit(review, NOT_CREATED if review.is_about_pod else NOT_A_POD)
    if review.pod is None:
        problem = review.problem if isinstance(review, UnreadableReview) else NO_POD
        return _unreadable(review, problem)
    mappings = index.namespace(review.namespace)
    decision = decide(review.pod, mappings, policy, validating=validating)
    result = decision.result
    if isinstance(result, Unchanged):
        return _admit(review, result.reason, result.warnings, decision.audit)
    if isinstance(result, Refused):
        return _deny(review, result.refusals[0].reason, result.message, decision.audit)
    if validating:
        return _deny(review, NOT_MUTATED, _not_mutated(result), {REASON: NOT_MUTATED})
    return _patch(review, result, decision)


def _admit(
    review: Review,
    reason: str,
    warnings: tuple[str, ...] = (),
    audit: dict[str, str] | None = None,
) -> ReviewResponse:
    return ReviewResponse(
        allowed(review.uid, warnings, audit),
        review.uid,
        _ALLOWED,
        reason,
        review.namespace,
        review.pod.display_name if review.pod else "",
        warnings=warnings,
    )


def _patch(review: Review, result: Patched, decision: PodDecision) -> ReviewResponse:
    return ReviewResponse(
        patched(review.uid, result.operations, result.warnings, decision.audit),
        review.uid,
        _PATCHED,
        "",
        review.namespace,
        review.pod.display_name if review.pod else "",
        rewrites=result.rewrites,
        warnings=result.warnings,
    )


def _deny(
    review: Review, reason: str, message: str, audit: dict[str, str] | None
) -> ReviewResponse:
    return ReviewResponse(
        denied(review.uid, message, audit=audit),
        review.uid,
        ReviewOutcome.DENIED,
        reason,
        review.namespace,
        review.pod.display_name if review.pod else "",
        message,
    )


def _unreadable(review: Review, message: str) -> ReviewResponse:
    short = plain(message, 500)
    return ReviewResponse(
        errored(review.uid, short, code=400, audit={REASON: UNREADABLE_POD}),
        review.uid,
        ReviewOutcome.ERRORED,
        UNREADABLE_POD,
        review.namespace,
        review.pod.display_name if review.pod else "",
        short,
    )


def _not_mutated(result: Patched) -> str:
    shown = [
        f'{plain(rewrite.logical)} in container "{plain(rewrite.container)}"'
        for rewrite in result.rewrites[:_REWRITES_SHOWN]
    ]
    names = listing(shown, more=len(result.rewrites) - len(shown))
    return (
        f"{names} was not rewritten to what it stands for: either another webhook changed the pod "
        "after accelbind's mutating webhook, or that one's configuration is missing"
    )
