"""The webhook's FastAPI application: reads a body, reviews it, counts and logs the answer.

A request that gets no review gets a Kubernetes Status, whose message the API server shows to the
user who creates the pod.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias, cast

import msgspec
import structlog
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from services.admission.mapping_review import validate
from services.admission.mutate import Policy
from services.admission.pod_review import answer, answer_guard
from services.admission.review import STATUS_REASONS, ReviewResponse
from services.mappings.index import MappingIndex
from services.pods.reasons import ReviewOutcome, ReviewReason
from services.process.errors import InvalidReview
from services.process.text import plain
from webhook.metrics import AdmissionMetrics

Headers: TypeAlias = list[tuple[bytes, bytes]]


_NOT_LOADED_MESSAGE: Final = "the mappings aren't loaded yet: try again in a moment"

log = structlog.get_logger(component="admission")


class Mappings(Protocol):
    """Where the mappings come from."""

    index: MappingIndex
    """What serves; replaced as a whole when they change."""
    loaded: bool
    """Whether they have been read completely once."""


VALIDATE_MAPPING: Final = "validate-mapping"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The review that some paths serve."""

    name: str
    """Its metric label."""
    subject: str
    """What it reviews, for log lines: `pod` or `mapping`."""
    review: Callable[[bytes, MappingIndex, Policy], ReviewResponse]
    """Answers the bytes of a review; raises `InvalidReview`."""


_MUTATE: Final = Endpoint("mutate", "pod", partial(answer, validating=False))

ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "/mutate": _MUTATE,
    "/pods": _MUTATE,
    "/validate": Endpoint("validate", "pod", partial(answer, validating=True)),
    "/guard": Endpoint("guard", "pod", answer_guard),
    "/validate-mapping": Endpoint(VALIDATE_MAPPING, "mapping", validate),
}
"""By path; webhook configurations of the Intel webhook use `/pods`."""


class Rejection(Exception):
    """A request that can't be answered with a review."""

    def __init__(self, status: int, reason: ReviewReason, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def status_body(code: int, message: str) -> bytes:
    """Return a Kubernetes Status, which kubectl and other clients show as an error.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
    """
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    reason = STATUS_REASONS.get(code, "")
    return msgspec.json.encode(status | {"message": message, "reason": reason, "code": code})


class AdmissionHandler:
    """Answers reviews with the mappings of the moment."""

    def __init__(
        self,
        mappings: Mappings,
        policy: Policy,
        metrics: AdmissionMetrics,
        *,
        max_body: int,
    ) -> None:
        self._mappings = mappings
        self._policy = policy
        self._metrics = metrics
        self._max_body = max_body

    async def respond(
        self, endpoint: Endpoint, headers: Headers, stream: AsyncIterator[bytes]
    ) -> tuple[int, bytes]:
        """Answer a request with these headers and body; return HTTP status and body."""
        try:
            _check_headers(headers, self._max_body)
            return 200, self._review(endpoint, await _read_body(stream, self._max_body))
        except Rejection as rejection:
            return self._reject(endpoint, rejection)

    def _review(self, endpoint: Endpoint, body: bytes) -> bytes:
        self._metrics.sizes.observe(len(body))
        begun = time.perf_counter()
        try:
            answer = endpoint.review(body, self._mappings.index, self._policy)
        except InvalidReview as error:
            raise Rejection(400, ReviewReason.INVALID_REVIEW, str(error)) from error
        if not self._mappings.loaded and _depends_on_mappings(endpoint, answer):
            raise Rejection(503, ReviewReason.NOT_LOADED, _NOT_LOADED_MESSAGE)
        self._metrics.seconds.observe(time.perf_counter() - begun)
        self._metrics.count(endpoint.name, answer.outcome, answer.reason)
        _log_review(endpoint, answer)
        return answer.body

    def _reject(self, endpoint: Endpoint, rejection: Rejection) -> tuple[int, bytes]:
        self._metrics.count(endpoint.name, ReviewOutcome.REJECTED, rejection.reason)
        log.info(
            "request rejected",
            endpoint=endpoint.name,
            status=rejection.status,
            reason=rejection.reason,
            message=str(rejection),
        )
        return rejection.status, status_body(rejection.status, str(rejection))


def _check_headers(headers: Headers, limit: int) -> None:
    kind = b""
    for name, value in headers:
        if name == b"content-type":
            kind = value
        elif name == b"content-length" and int(value) > limit:
            raise _too_large(limit)
        elif name == b"transfer-encoding":
            message = "a review must have a Content-Length"
            raise Rejection(411, ReviewReason.LENGTH_REQUIRED, message)
        elif name == b"content-encoding" and value.strip().lower() != b"identity":
            message = "a review must not be compressed"
            raise Rejection(415, ReviewReason.CONTENT_ENCODING, message)
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        message = "a review must come as application/json"
        raise Rejection(415, ReviewReason.CONTENT_TYPE, message)


async def _read_body(stream: AsyncIterator[bytes], limit: int) -> bytes:
    body = bytearray()
    async for part in stream:
        body += part
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> Rejection:
    message = f"a review may have at most {limit} bytes"
    return Rejection(413, ReviewReason.TOO_LARGE, message)


def _depends_on_mappings(endpoint: Endpoint, response: ReviewResponse) -> bool:
    """Return whether the answer could change once the mappings are loaded."""
    # A pod that requests no name is admitted meanwhile.
    clashes_unseen = endpoint.name == VALIDATE_MAPPING and response.reason == ReviewReason.USABLE
    return response.outcome is ReviewOutcome.DENIED or clashes_unseen


def _log_review(endpoint: Endpoint, response: ReviewResponse) -> None:
    refused = response.outcome in (ReviewOutcome.DENIED, ReviewOutcome.ERRORED)
    more: dict[str, object] = {"message": response.message, "exc_info": response.error}
    if not refused:
        rewrites = {rewrite.key: rewrite.resource for rewrite in response.rewrites}
        more = {"outcome": response.outcome, "rewrites": rewrites}
    write = log.error if response.error else log.info if refused else log.debug
    write(
        f"{endpoint.subject} {'refused' if refused else 'admitted'}",
        endpoint=endpoint.name,
        namespace=plain(response.review.namespace),
        **{endpoint.subject: plain(response.review.name)},
        reason=response.reason,
        uid=plain(response.review.uid),
        **more,
    )


_JSON: Final = "application/json"

_Answering = Callable[[Request], Awaitable[Response]]


def create_app(handler: AdmissionHandler) -> FastAPI:
    """Return the application."""
    app = FastAPI(
        openapi_url=None,  # its clients are API servers
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # costs 10 µs per review
    )
    for path, endpoint in ENDPOINTS.items():
        app.add_route(path, _reviewing(handler, endpoint), methods=["POST"])
    app.add_exception_handler(HTTPException, _answer_routing_error)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    return app


def _reviewing(handler: AdmissionHandler, endpoint: Endpoint) -> _Answering:
    async def review(request: Request) -> Response:
        status, body = await handler.respond(endpoint, request.scope["headers"], request.stream())
        return Response(body, status, media_type=_JSON)

    return review


async def _answer_routing_error(_request: Request, error: Exception) -> Response:
    """Answer with a Kubernetes Status."""
    error = cast("HTTPException", error)
    body = status_body(error.status_code, str(error.detail))
    return Response(body, error.status_code, error.headers, _JSON)


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    """Answer a client that has closed the connection."""
    return Response(status_code=400)
