"""AdmissionReview v1 from the API server's side: the request, and the checks of an answer.

It does not use the webhook's codec, so that a mistake in that is noticed here. Requests have
the fields and their order of the recorded reviews; answers are checked as `VerifyAdmissionResponse`
of `k8s.io/apiserver` does, with its texts.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from simulator.apiserver import wire
from simulator.apiserver.identity import Identity
from simulator.apiserver.resources import Resource
from simulator.apiserver.wire import Json


class InvalidAnswer(Exception):
    """A webhook's answer that a real API server would refuse."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of an admission request, apart from the object.

    Args:
        resource: its resource.
        namespace: empty for cluster-wide kinds.
        name: empty where it is still to be generated.
        operation: `CREATE`, `UPDATE` or `DELETE`.
        identity: who asks.
        options: the `CreateOptions`, `UpdateOptions` or `DeleteOptions` of the request.
        dry_run: nothing is to be stored.
        old: the object before, for an update or deletion.
        subresource: `status` or empty.
    """

    resource: Resource
    namespace: str
    name: str
    operation: str
    identity: Identity
    options: Json = field(default_factory=dict)
    dry_run: bool = False
    old: Json | None = None
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class WebhookVerdict:
    """A webhook's answer, checked.

    Args:
        allowed: whether the object may pass.
        patch: JSON Patch operations, None where there is nothing to do.
        status: the Status of a refusal.
        warnings: sentences for the asker.
        annotations: for the audit log.
    """

    allowed: bool
    patch: list[Any] | None
    status: Json
    warnings: tuple[str, ...]
    annotations: Mapping[str, str]


def request(uid: str, attributes: Attributes, item: Json | None) -> bytes:
    """The body of a review request."""
    fields = request_fields(uid, attributes)
    fields["object"] = _raw(attributes.resource, item)
    fields["oldObject"] = _raw(attributes.resource, attributes.old)
    fields |= {"dryRun": attributes.dry_run, "options": attributes.options}
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": fields}
    return wire.encode(review) + b"\n"


def request_fields(uid: str, attributes: Attributes) -> Json:
    """What a review says of the request, apart from objects and options."""
    resource = attributes.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    plural = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    fields: Json = {"uid": uid, "kind": kind, "resource": plural}
    if attributes.subresource:
        fields["subResource"] = attributes.subresource
    fields |= {"requestKind": kind, "requestResource": plural}
    if attributes.subresource:
        fields["requestSubResource"] = attributes.subresource
    if attributes.name:
        fields["name"] = attributes.name
    if attributes.namespace:
        fields["namespace"] = attributes.namespace
    fields["operation"] = attributes.operation
    fields["userInfo"] = attributes.identity.user_info()
    return fields


def _raw(resource: Resource, item: Json | None) -> msgspec.Raw | None:
    return None if item is None else msgspec.Raw(resource.encode(item))


def verify(body: bytes, uid: str, *, mutating: bool) -> WebhookVerdict:
    """Reads an answer as strictly as a real API server."""
    review = _decode(body)
    response = review.get("response")
    if not isinstance(response, dict):
        raise InvalidAnswer("webhook response was absent")
    found = (review.get("apiVersion"), review.get("kind"))
    if found != ("admission.k8s.io/v1", "AdmissionReview"):
        group, _, version = str(found[0] or "").rpartition("/")
        raise InvalidAnswer(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got"
            f" {group}/{version}, Kind={found[1] or ''}"
        )
    if response.get("uid", "") != uid:
        given = wire.encode(response.get("uid", "")).decode()
        raise InvalidAnswer(f'expected response.uid="{uid}", got {given}')
    patch = _patch(response, mutating=mutating)
    allowed = _typed(response, "allowed", bool, default=False)
    status: Json = _typed(response, "status", dict, default={})
    annotations: Json = _typed(response, "auditAnnotations", dict, default={})
    warnings: list[Any] = _typed(response, "warnings", list, default=[])
    if not all(isinstance(text, str) for text in [*warnings, *annotations.values()]):
        raise InvalidAnswer("json: cannot unmarshal non-string into Go value of type string")
    return WebhookVerdict(allowed, patch, status, tuple(warnings), annotations)


def _decode(body: bytes) -> Json:
    try:
        review = wire.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidAnswer(f"couldn't get version/kind; json parse error: {error}") from error
    if not isinstance(review, dict):
        raise InvalidAnswer("couldn't get version/kind; json parse error: not an object")
    if not review.get("kind"):
        shown = body[:256].decode("utf-8", "replace")
        raise InvalidAnswer(f"Object 'Kind' is missing in '{shown}'")
    return review


def _patch(response: Json, *, mutating: bool) -> list[Any] | None:
    encoded = _typed(response, "patch", str, default="")
    kind = response.get("patchType")
    if not mutating:
        if encoded:
            raise InvalidAnswer("validating webhook may not return response.patch")
        if kind is not None:
            raise InvalidAnswer("validating webhook may not return response.patchType")
        return None
    if not encoded and kind is None:
        return None
    if encoded and kind is None:
        raise InvalidAnswer("webhook returned response.patch but not response.patchType")
    if not encoded:
        raise InvalidAnswer("webhook returned response.patchType but not response.patch")
    if kind != "JSONPatch":
        raise InvalidAnswer(f'webhook returned invalid response.patchType of "{kind}"')
    try:
        operations = wire.decode(base64.b64decode(encoded, validate=True))
    except (binascii.Error, msgspec.DecodeError) as error:
        raise InvalidAnswer(f"json: the patch can't be decoded: {error}") from error
    if not isinstance(operations, list):
        raise InvalidAnswer("json: cannot unmarshal the patch into jsonpatch.Patch")
    return operations


def _typed(response: Json, name: str, kind: type, *, default: Any) -> Any:  # noqa: ANN401 - JSON
    value = response.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise InvalidAnswer(
            f"json: cannot unmarshal {type(value).__name__} into Go struct field"
            f" AdmissionResponse.response.{name}"
        )
    return value
