"""Errors as an API server answers them: `v1.Status` objects with code, reason and message.

`StatusError` is raised anywhere below a request and becomes the answer at its edge. Reasons are
those of `k8s.io/apimachinery/pkg/apis/meta/v1`, which clients such as kubectl act upon.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.process.errors import AccelbindError
from simulator.apiserver.resources import Resource
from simulator.apiserver.wire import Json, encode

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(AccelbindError):
    """A request that is answered with a failure."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Json | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = REASONS.get(code, "InternalError") if reason is None else reason
        self.message = message
        self.details = details

    def status(self) -> Json:
        """The Status object, fields in the order a real API server writes them."""
        status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
        status |= {"status": "Failure", "message": self.message}
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return status | {"code": self.code}

    def body(self) -> bytes:
        """The Status as an answer's body."""
        return encode(self.status()) + b"\n"


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that is wrong, and what is wrong with it."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def invalid_value(field: str, value: object, why: str) -> Cause:
    """`field: Invalid value: "value": why`."""
    return Cause(field, f"Invalid value: {encode(value).decode()}: {why}")


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> StatusError:
    """422: the object is well-formed and does not fit its kind."""
    texts = ", ".join(map(str, causes))
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    listed = texts if len(causes) == 1 else f"[{texts}]"
    details: Json = {"name": name, "group": resource.group, "kind": resource.kind}
    details["causes"] = [{"message": one.message, "field": one.field} for one in causes]
    return StatusError(422, f'{qualified} "{name}" is invalid: {listed}', details=details)


def not_found(resource: Resource, name: str) -> StatusError:
    """404: no object of this name."""
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return StatusError(404, f'{resource.qualified} "{name}" not found', details=details)


def conflict(resource: Resource, name: str, why: str = "") -> StatusError:
    """409: the object has changed since the sender read it."""
    reason = why or (
        "the object has been modified; please apply your changes to the latest version and try"
        " again"
    )
    return StatusError(
        409, f'Operation cannot be fulfilled on {resource.qualified} "{name}": {reason}'
    )


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """403: known who asks, and refused."""
    named = f'{resource.qualified} "{name}"' if name else resource.qualified
    return StatusError(403, f"{named} is forbidden: {why}")


def bad_request(message: str) -> StatusError:
    """400: not readable as what it should be."""
    return StatusError(400, message)


def internal(message: str) -> StatusError:
    """500, with the cause as a real API server repeats it."""
    return StatusError(500, f"Internal error occurred: {message}")
