"""One request as the verbs and webhooks handle it, and the errors that it may be answered with.

`StatusError` is raised anywhere below a request and becomes a `v1.Status` at its edge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import yaml

from services.process.errors import AccelbindError
from simulator.apiserver.http_server import Request
from simulator.apiserver.resources import NAMESPACES, Json, Resource, Target
from simulator.apiserver.store import encode
from simulator.apiserver.tables import wants_table

APPLY = "application/apply-patch+yaml"
USER = {"username": "admin", "groups": ["system:masters", "system:authenticated"]}
"""Whoever has the token, as reviews describe it."""
MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")

# Errors

# Of `k8s.io/apimachinery/pkg/apis/meta/v1`; clients such as kubectl act upon them.
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
    def __init__(self, code: int, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = REASONS.get(code, "InternalError") if reason is None else reason
        self.message = message

    def status(self) -> Json:
        status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
        status |= {"status": "Failure", "message": self.message, "code": self.code}
        return status | ({"reason": self.reason} if self.reason else {})

    def body(self) -> bytes:
        return encode(self.status()) + b"\n"


def invalid_value(field: str, value: object, why: str) -> str:
    """`field: Invalid value: "value": why`."""
    return f"{field}: Invalid value: {encode(value).decode()}: {why}"


def invalid(resource: Resource, name: str, causes: Sequence[str]) -> StatusError:
    """422: the object is well-formed and does not fit its kind; each cause begins with a field."""
    texts = ", ".join(causes)
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    listed = texts if len(causes) == 1 else f"[{texts}]"
    return StatusError(422, f'{qualified} "{name}" is invalid: {listed}')


def not_found(resource: Resource, name: str) -> StatusError:
    return StatusError(404, f'{resource.qualified} "{name}" not found')


def conflict(resource: Resource, name: str, why: str = "") -> StatusError:
    reason = why or (
        "the object has been modified; please apply your changes to the latest version and try"
        " again"
    )
    text = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {reason}'
    return StatusError(409, text)


def bad_request(message: str) -> StatusError:
    return StatusError(400, message)


def internal(message: str) -> StatusError:
    """500, with the cause as a real API server repeats it."""
    return StatusError(500, f"Internal error occurred: {message}")


# The call


@dataclass(frozen=True, slots=True)
class ApiCall:
    target: Target
    request: Request
    patches: list[Json] = field(default_factory=list)
    """The operations of webhooks' patches."""
    warnings: dict[str, None] = field(default_factory=dict)
    """For the client, each once."""

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"

    @property
    def as_table(self) -> bool:
        """Whether the client prefers a Table, as `kubectl get` does."""
        return wants_table(self.request.headers.get("accept", ""))

    @property
    def content_type(self) -> str:
        """The body's media type, without parameters."""
        return self.request.headers.get("content-type", "").split(";")[0].strip()

    def decode(self) -> Json:
        """The body as a JSON object, or an error 400 or 415."""
        if self.content_type not in ("", "application/json", *MERGES):
            raise StatusError(415, f"the body of the request was in {self.content_type}, not JSON")
        try:
            return msgspec.json.decode(self.request.body, type=Json)
        except msgspec.DecodeError as error:
            raise bad_request(f"the body is no JSON object: {error}") from error

    def applied(self) -> Json:
        item: Json = yaml.safe_load(self.request.body)
        return item


@dataclass(frozen=True, slots=True)
class Operation:
    """The effect of a call on an object, as a review describes it."""

    call: ApiCall
    kind: str
    """`CREATE`, `UPDATE` or `DELETE`."""
    name: str
    """Empty where it is still to be generated."""
    old: Json | None = None

    @property
    def namespace(self) -> str:
        """Empty for cluster-wide kinds; a namespace is in itself."""
        target = self.call.target
        return self.name if target.resource is NAMESPACES else target.namespace

    def as_request(self) -> Json:
        """The part of a review about the request, apart from objects and options."""
        target = self.call.target
        version = {"group": target.resource.group, "version": target.resource.version}
        kind = version | {"kind": target.resource.kind}
        plural = version | {"resource": target.resource.plural}
        fields: Json = {
            "kind": kind,
            "resource": plural,
            "subResource": target.subresource,
            "requestKind": kind,
            "requestResource": plural,
            "requestSubResource": target.subresource,
            "name": self.name,
            "namespace": self.namespace,
            "operation": self.kind,
            "userInfo": USER,
        }
        return {name: value for name, value in fields.items() if value}

    def options(self) -> Json:
        options: Json = {"kind": f"{self.kind.title()}Options", "apiVersion": "meta.k8s.io/v1"}
        if self.call.dry_run:
            options["dryRun"] = ["All"]
        for key in ("fieldManager", "fieldValidation"):
            if value := self.call.query.get(key):
                options[key] = value
        return options
