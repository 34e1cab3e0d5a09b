"""The hot path: a request's body in, a review's answer out.

`Gate.serve` is an ASGI application for the admission endpoints alone: it checks what HTTP says and
reads the body within its limit. `Gate.reply`, which `webhook.direct` calls without that, hands a
whole body to `services.admission.review.answer`; between decode and encode nothing waits. What
isn't a review gets a Kubernetes Status with a 4xx, and what mappings that aren't loaded yet might
decide one with a 503; the API server passes its message on to whoever created the pod.
"""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import structlog

from services.admission.mapping_review import USABLE
from services.admission.mutate import Policy
from services.admission.review import Answer, Outcome, answer
from services.mappings.model import MappingIndex
from services.process.errors import InvalidReview
from webhook.figures import Figures
from webhook.mappings import ENDPOINTS as MAPPING_ENDPOINTS
from webhook.mappings import JUDGES, VALIDATE_MAPPING

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

MUTATE: Final = "mutate"
VALIDATE: Final = "validate"
ENDPOINTS: Final = {
    "/mutate": MUTATE,
    "/pods": MUTATE,
    "/validate": VALIDATE,
    **MAPPING_ENDPOINTS,
}
"""Paths and what they do; `/pods` is what configurations of the public webhook name."""

REJECTED: Final = "rejected"
"""The outcome, in metrics, of a request that was answered with a Status rather than a review."""

_STATUS_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    431: "RequestHeaderFieldsTooLarge",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_NOT_LOADED_MESSAGE: Final = "the mappings aren't loaded yet: try again in a moment"
_ADMITTED: Final = (Outcome.PATCHED, Outcome.ALLOWED)
_OK: Final = 200
_JSON: Final = (b"content-type", b"application/json")
_CLOSE: Final = (b"connection", b"close")

log = structlog.get_logger(room="admission")


class Mappings(Protocol):
    """Where the mappings come from.

    Attributes:
        index: What serves; replaced as a whole when they change.
        loaded: Whether that is what there is, rather than nothing yet.
    """

    index: MappingIndex
    loaded: bool


class RejectionReason(StrEnum):
    """Why a request got no judgement; the values are metric labels."""

    INVALID_REVIEW = "invalid-review"
    """The body is no AdmissionReview of v1 with a uid (400)."""
    TOO_LARGE = "too-large"
    """The body is larger than `--max-body` (413)."""
    CONTENT_TYPE = "content-type"
    """The body isn't `application/json` (415)."""
    CONTENT_ENCODING = "content-encoding"
    """The body is compressed (415)."""
    NOT_LOADED = "not-loaded"
    """The mappings aren't loaded yet, and they might decide (503)."""


class Rejection(Exception):
    """A request that isn't a review, or comes before it can be judged."""

    def __init__(self, status: int, reason: RejectionReason, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Gone(Exception):
    """The client went away before its request was whole."""


def status_body(code: int, message: str) -> bytes:
    """A Kubernetes Status: what clients of an API server know how to show.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
    """
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": _STATUS_REASONS.get(code, ""),
            "code": code,
        }
    )


class Gate:
    """Answers reviews.

    Args:
        mappings: Where the index is read for each request.
        policy: The administrator's.
        figures: Where requests are counted.
        max_body: How many bytes a body may have.
        verbose: Whether admitted pods are logged too.

    Attributes:
        draining: Whether clients are asked to come back on another connection, elsewhere.
    """

    def __init__(
        self,
        mappings: Mappings,
        policy: Policy,
        figures: Figures,
        *,
        max_body: int,
        verbose: bool = False,
    ) -> None:
        self.draining = False
        self._mappings = mappings
        self._policy = policy
        self._figures = figures
        self._max_body = max_body
        self._verbose = verbose

    async def serve(self, endpoint: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request as an ASGI application."""
        try:
            status, body = await self.respond(endpoint, scope["headers"], receive)
        except Gone:
            return
        headers = [_JSON, (b"content-length", b"%d" % len(body))]
        if self.draining:
            headers.append(_CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def respond(self, endpoint: str, headers: Headers, receive: Receive) -> tuple[int, bytes]:
        """The status and body for one request.

        Raises:
            Gone: There is nobody left to answer.
        """
        try:
            self._check(headers)
            body = await self._read(receive)
        except Rejection as rejection:
            return self._reject(endpoint, rejection)
        return self.reply(endpoint, body)

    def takes(self, headers: Headers) -> bool:
        """Whether headers tell of a body that `reply` takes as it is; if not, `respond` may."""
        length, kind = -1, b""
        for name, value in headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"content-type":
                kind = value
            elif name == b"content-encoding":
                return False
        return 0 <= length <= self._max_body and kind == b"application/json"

    def reply(self, endpoint: str, body: bytes) -> tuple[int, bytes]:
        """The status and body of the answer to a review that is there as a whole."""
        figures = self._figures
        figures.sizes.observe(len(body))
        begun = time.perf_counter()
        try:
            index, judge = self._mappings.index, JUDGES.get(endpoint)
            found = (
                answer(body, index, self._policy, validating=endpoint == VALIDATE)
                if judge is None
                else judge(body, index)
            )
        except InvalidReview as error:
            return self._reject(
                endpoint, Rejection(400, RejectionReason.INVALID_REVIEW, str(error))
            )
        if not self._mappings.loaded and _rests_on_mappings(endpoint, found):
            return self._reject(
                endpoint, Rejection(503, RejectionReason.NOT_LOADED, _NOT_LOADED_MESSAGE)
            )
        figures.seconds.observe(time.perf_counter() - begun)
        figures.count(endpoint, found.outcome, found.reason)
        if found.outcome not in _ADMITTED:
            _tell_refused(endpoint, found)
        elif self._verbose:
            _tell_admitted(endpoint, found)
        return _OK, found.body

    def _check(self, headers: Headers) -> None:
        kind = b""
        for name, value in headers:
            if name == b"content-type":
                kind = value
            elif name == b"content-length" and int(value) > self._max_body:
                raise self._too_large()
            elif name == b"content-encoding" and value.strip().lower() != b"identity":
                raise Rejection(
                    415, RejectionReason.CONTENT_ENCODING, "a review must not be compressed"
                )
        if kind != b"application/json" and (
            kind.partition(b";")[0].strip().lower() != b"application/json"
        ):
            raise Rejection(
                415, RejectionReason.CONTENT_TYPE, "a review must come as application/json"
            )

    async def _read(self, receive: Receive) -> bytes:
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        body: bytes = message["body"]
        if message["more_body"]:
            body = await self._read_on(receive, body)
        if len(body) > self._max_body:
            raise self._too_large()
        return body

    async def _read_on(self, receive: Receive, begin: bytes) -> bytes:
        parts, size, more = [begin], len(begin), True
        while more and size <= self._max_body:
            message = await receive()
            if message["type"] != "http.request":
                raise Gone
            parts.append(message["body"])
            size += len(message["body"])
            more = message["more_body"]
        return b"".join(parts)

    def _too_large(self) -> Rejection:
        return Rejection(
            413, RejectionReason.TOO_LARGE, f"a review may have at most {self._max_body} bytes"
        )

    def _reject(self, endpoint: str, rejection: Rejection) -> tuple[int, bytes]:
        self._figures.count(endpoint, REJECTED, rejection.reason)
        log.info(
            "request rejected",
            endpoint=endpoint,
            status=rejection.status,
            reason=rejection.reason,
            message=str(rejection),
        )
        return rejection.status, status_body(rejection.status, str(rejection))


def _rests_on_mappings(endpoint: str, found: Answer) -> bool:
    """Whether an answer might be another one if mappings were loaded."""
    clashes_unseen = endpoint == VALIDATE_MAPPING and found.reason == USABLE
    return found.outcome is Outcome.DENIED or clashes_unseen


def _tell_refused(endpoint: str, found: Answer) -> None:
    tell = log.info if found.error is None else log.error
    tell(
        "mapping refused" if endpoint in JUDGES else "pod refused",
        endpoint=endpoint,
        namespace=found.namespace,
        **_subject(endpoint, found),
        reason=found.reason,
        message=found.message,
        uid=found.uid,
        exc_info=found.error,
    )


def _tell_admitted(endpoint: str, found: Answer) -> None:
    log.debug(
        "mapping admitted" if endpoint in JUDGES else "pod admitted",
        endpoint=endpoint,
        namespace=found.namespace,
        **_subject(endpoint, found),
        outcome=found.outcome,
        reason=found.reason,
        rewrites={rewrite.logical: rewrite.resource for rewrite in found.rewrites},
        uid=found.uid,
    )


def _subject(endpoint: str, found: Answer) -> dict[str, str]:
    return {"mapping" if endpoint in JUDGES else "pod": found.pod}
