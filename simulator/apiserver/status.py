"""Errors as an API server answers them: `v1.Status` objects with code, reason and message.

`StatusError` is raised anywhere below a request and becomes the answer at its edge. The
constructors below are named for the reasons in `k8s.io/apimachinery/pkg/apis/meta/v1`, and their
texts follow `k8s.io/apimachinery/pkg/api/errors`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.process.errors import AccelbindError
from simulator.apiserver import wire
from simulator.apiserver.wire import Json


class StatusError(AccelbindError):
    """A request that is answered with a failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        metadata: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}
        self.headers = dict(headers or {})

    def status(self) -> Json:
        """The Status object, fields in the order a real API server writes them."""
        status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata}
        status |= {"status": "Failure", "message": self.message}
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return status | {"code": self.code}

    def body(self) -> bytes:
        """The Status as an answer's body."""
        return wire.encode(self.status()) + b"\n"


def success(details: Json) -> Json:
    """The Status that answers a deletion without an object."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that is wrong.

    Args:
        field: path of the field, such as `spec.containers[0].name`.
        message: what is wrong with it, without the path.
        reason: `FieldValueInvalid`, `FieldValueRequired`, …
    """

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def text(self) -> str:
        """Field and message as they stand in the Status's message."""
        return f"{self.field}: {self.message}"


def invalid_value(field: str, value: object, why: str) -> Cause:
    """`field: Invalid value: "value": why`; other values than text stand in JSON's notation."""
    shown = wire.encode(value).decode()
    return Cause(field, f"Invalid value: {shown}: {why}")


def required(field: str, why: str = "") -> Cause:
    """`field: Required value`."""
    text = f"Required value: {why}" if why else "Required value"
    return Cause(field, text, "FieldValueRequired")


def unsupported(field: str, value: object, supported: Sequence[str]) -> Cause:
    """`field: Unsupported value: "value": supported values: …`."""
    known = ", ".join(f'"{one}"' for one in supported)
    message = f"Unsupported value: {wire.encode(value).decode()}: supported values: {known}"
    return Cause(field, message, "FieldValueNotSupported")


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """422: the object is well-formed and does not fit its kind."""
    texts = [cause.text() for cause in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind}.{group}" if group else kind
    return StatusError(
        422,
        "Invalid",
        f'{qualified} "{name}" is invalid: {joined}',
        details=_details(name, group, kind)
        | {
            "causes": [
                {"reason": cause.reason, "message": cause.message, "field": cause.field}
                for cause in causes
            ]
        },
    )


def _details(name: str, group: str, kind: str) -> Json:
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    return details | {"kind": kind}


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> StatusError:
    """404: no object of this name."""
    message = f'{_qualified(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, details=_details(name, group, plural))


def unknown_path() -> StatusError:
    """404: no such resource or path."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """409: the name is taken."""
    message = f'{_qualified(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_details(name, group, plural))


def conflict(group: str, plural: str, name: str, why: str = "") -> StatusError:
    """409: the object has changed since the sender read it."""
    reason = why or (
        "the object has been modified; please apply your changes to the latest version and try"
        " again"
    )
    message = f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {reason}'
    return StatusError(409, "Conflict", message, details=_details(name, group, plural))


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """403: known who asks, and refused."""
    named = f' "{name}"' if name else ""
    message = f"{_qualified(group, plural)}{named} is forbidden: {why}"
    return StatusError(403, "Forbidden", message, details=_details(name, group, plural))


def unauthorized() -> StatusError:
    """401: no or unknown credentials."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def bad_request(message: str) -> StatusError:
    """400: not readable as what it should be."""
    return StatusError(400, "BadRequest", message)


def internal(message: str) -> StatusError:
    """500, with the cause as a real API server repeats it."""
    return StatusError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        details={"causes": [{"message": message}]},
    )


def expired(message: str, *, continue_token: str = "") -> StatusError:
    """410: the resource version asked for is no longer kept."""
    metadata = {"continue": continue_token} if continue_token else None
    return StatusError(410, "Expired", message, metadata=metadata)


def too_large_version(asked: int, current: int) -> StatusError:
    """504: a resource version that this server has not reached yet."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
        headers={"Retry-After": "1"},
    )


def unsupported_media(found: str, supported: Sequence[str]) -> StatusError:
    """415: a body in a language this server does not read."""
    message = (
        "the body of the request was in an unknown format - accepted media types include:"
        f" {', '.join(supported)}"
    )
    if found:
        message += f" (got {found})"
    return StatusError(415, "UnsupportedMediaType", message)


def method_not_allowed(verb: str) -> StatusError:
    """405: the resource does not know this verb."""
    message = f"the server does not allow this method on the requested resource ({verb})"
    return StatusError(405, "MethodNotAllowed", message, details={})


def too_large(limit: int) -> StatusError:
    """413: a body over the limit."""
    message = f"Request entity too large: limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message)
