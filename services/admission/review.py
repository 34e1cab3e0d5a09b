"""AdmissionReview v1: what the bytes of a request say, and the bytes of the answer.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
A review with a uid is always answered with that uid, whatever else is wrong with it.
"""

from collections.abc import Mapping, Sequence

import msgspec

from services.admission.mutate import REASON
from services.admission.patch import Operation
from services.admission.requested import ResourceRequest
from services.pods.pod import Pod
from services.pods.reasons import ReviewOutcome, ReviewReason
from services.process.errors import InvalidReview
from services.process.json import UNREADABLE
from services.process.text import plain, quote

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

STATUS_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    500: "InternalError",
    503: "ServiceUnavailable",
}
"""The reason of a Kubernetes Status, by its code."""
_NODE_USER, _NODE_GROUP = "system:node:", "system:nodes"
_MAX_UID = 128  # characters; API servers send 36, and the answer repeats them
_MAX_UNREADABLE = 500  # characters of a message about a review that can't be read


class GroupKind(msgspec.Struct, frozen=True, gc=False):
    """The kind of object that a review is about, in any version."""

    group: str = ""
    kind: str = ""


class _Request(msgspec.Struct, gc=False):
    uid: str
    """The answer repeats it."""
    kind: GroupKind = GroupKind()
    operation: str = ""
    """Such as ``CREATE``."""
    sub_resource: str = msgspec.field(name="subResource", default="")
    """Such as ``status``; empty for the object itself."""
    namespace: str = ""
    """Of the object."""


class User(msgspec.Struct, frozen=True, gc=False):
    """Who wrote the object."""

    username: str = ""
    groups: list[str] | None = None

    @property
    def is_node(self) -> bool:
        """Whether it is a kubelet (https://kubernetes.io/docs/reference/access-authn-authz/node/)."""
        return self.username.startswith(_NODE_USER) and _NODE_GROUP in (self.groups or ())


class Review(_Request):
    """A review that can be answered."""

    user: User | None = msgspec.field(name="userInfo", default=None)

    pod: Pod | None = msgspec.field(name="object", default=None)
    """The object, read as a pod."""

    @property
    def is_about_pod(self) -> bool:
        """Whether the object is a pod, and not a part of one."""
        return self.kind.kind == "Pod" and not self.kind.group and not self.sub_resource

    @property
    def name(self) -> str:
        """The object's name, or the prefix of a name that will be generated."""
        return self.pod.display_name if self.pod else ""


class UnreadableReview(Review):
    """A review whose object can't be read as a pod; it may be of another kind."""

    problem: str = ""


class ReviewResponse(msgspec.Struct, frozen=True):
    """The answer to a review, and what to count and log."""

    body: bytes
    """The AdmissionReview to send, as JSON."""
    review: Review
    outcome: ReviewOutcome
    reason: str
    """A `ReviewReason`; empty if patched."""
    message: str
    """The text for the client; empty if admitted."""
    rewrites: tuple[ResourceRequest, ...] = ()
    error: Exception | None = None
    """The exception behind an internal error, for the log."""


class _Envelope(msgspec.Struct, gc=False, rename="camel"):
    request: Review
    kind: str = ""
    api_version: str = ""


class _AnyEnvelope(msgspec.Struct, rename="camel"):
    request: _Request
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
    patch: bytes | None = None  # msgspec encodes bytes as base64, as the API requires
    warnings: Sequence[str] = ()
    audit_annotations: Mapping[str, str] | None = None


class _Reply(msgspec.Struct, rename="camel"):
    response: _Response
    kind: str = KIND
    api_version: str = API_VERSION


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Envelope)
_ANY_DECODER = msgspec.json.Decoder(_AnyEnvelope)
_UID_DECODER = msgspec.json.Decoder(_UidEnvelope)


def decode(body: bytes) -> Review:
    """Read an AdmissionReview; an `UnreadableReview` if the object can't be read as a pod.

    Raises:
        InvalidReview: it is no AdmissionReview of v1 in JSON, or it has no uid.
    """
    try:
        envelope = _DECODER.decode(body)
    except UNREADABLE as error:
        return _decode_leniently(body, f"the review can't be read: {error}")
    _check(envelope.kind, envelope.api_version, envelope.request.uid)
    return envelope.request


def _decode_leniently(body: bytes, problem: str) -> Review:
    """Read a review without its object, or at least its uid."""
    try:  # it may be of another kind
        envelope = _ANY_DECODER.decode(body)
    except UNREADABLE:
        try:
            uid_only = _UID_DECODER.decode(body)
        except UNREADABLE as error:
            raise InvalidReview(f"the body can't be read as an {KIND}: {error}") from error
        _check(uid_only.kind, uid_only.api_version, uid_only.request.uid)
        # Its kind is unknown, so it is treated as what these webhooks are called for.
        pod = GroupKind(kind="Pod")
        return UnreadableReview(uid_only.request.uid, pod, "CREATE", problem=problem)
    _check(envelope.kind, envelope.api_version, envelope.request.uid)
    return UnreadableReview(**msgspec.structs.asdict(envelope.request), problem=problem)


def _check(kind: str, api_version: str, uid: str) -> None:
    if kind != KIND or api_version != API_VERSION:
        raise InvalidReview(
            f"this webhook answers {KIND} of {API_VERSION}, not {quote(kind)} of "
            f"{quote(api_version)}: set admissionReviewVersions to v1 in its configuration"
        )
    if not 0 < len(uid) <= _MAX_UID:
        problem = "has no request.uid" if not uid else "has a request.uid that is too long"
        raise InvalidReview(f"the {KIND} {problem} to answer to")


def admit(
    review: Review,
    reason: str,
    *,
    warnings: tuple[str, ...] = (),
    audit: Mapping[str, str] | None = None,
) -> ReviewResponse:
    """Admit the object unchanged; `warnings` have at most 120 characters each.

    The API server prefixes the keys of `audit`.
    """
    response = _Response(review.uid, allowed=True, warnings=warnings, audit_annotations=audit)
    return ReviewResponse(_encoded(response), review, ReviewOutcome.ALLOWED, reason, "")


def patch(
    review: Review,
    operations: Sequence[Operation],
    *,
    rewrites: tuple[ResourceRequest, ...] = (),
    warnings: tuple[str, ...] = (),
    audit: Mapping[str, str] | None = None,
) -> ReviewResponse:
    """Admit the object with a JSON Patch; see `admit`."""
    response = _Response(
        review.uid,
        allowed=True,
        patch_type="JSONPatch",
        patch=_ENCODER.encode(operations),
        warnings=warnings,
        audit_annotations=audit,
    )
    return ReviewResponse(
        _encoded(response), review, ReviewOutcome.PATCHED, "", "", rewrites=rewrites
    )


def deny(
    review: Review, reason: str, message: str, *, audit: Mapping[str, str] | None = None
) -> ReviewResponse:
    """Refuse the object; kubectl shows the message after ``denied the request: ``."""
    body = _refusal(review, 403, message, audit or {REASON: reason})
    return ReviewResponse(body, review, ReviewOutcome.DENIED, reason, message)


def unreadable(review: Review, reason: str, problem: str) -> ReviewResponse:
    """Refuse an object that can't be read."""
    message = plain(problem, _MAX_UNREADABLE)
    body = _refusal(review, 400, message, {REASON: reason})
    return ReviewResponse(body, review, ReviewOutcome.ERRORED, reason, message)


def fail(review: Review, error: Exception) -> ReviewResponse:
    """Refuse an object because of an error in accelbind itself."""
    message = "internal error of accelbind: see the webhook's log and metrics"
    body = _refusal(review, 500, message, {REASON: ReviewReason.INTERNAL_ERROR})
    return ReviewResponse(
        body, review, ReviewOutcome.ERRORED, ReviewReason.INTERNAL_ERROR, message, error=error
    )


def _refusal(review: Review, code: int, message: str, audit: Mapping[str, str]) -> bytes:
    status = _Status(code, message, STATUS_REASONS[code])
    response = _Response(review.uid, allowed=False, status=status, audit_annotations=audit)
    return _encoded(response)


def _encoded(response: _Response) -> bytes:
    return _ENCODER.encode(_Reply(response))
