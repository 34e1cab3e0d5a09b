"""Dynamic admission: mutating webhooks in sequence, then validating ones in parallel.

As in `k8s.io/apiserver/pkg/admission/plugin/webhook`: configurations in the order of their names;
after each patch the object is defaulted again. A call that fails counts by `failurePolicy`, and so
does an answer that can't be used; a patch that can't be applied is always an internal error.
Not done: `reinvocationPolicy`.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import jsonpatch
import jsonpointer
import structlog

from simulator.apiserver import pods
from simulator.apiserver.calls import ApiCall, Operation
from simulator.apiserver.cel import CelError
from simulator.apiserver.reading import labels_of
from simulator.apiserver.resources import (
    DEFINITIONS,
    MUTATING,
    NAMESPACES,
    NODES,
    PODS,
    VALIDATING,
    Resource,
)
from simulator.apiserver.status import StatusError, forbidden, internal
from simulator.apiserver.store import Store
from simulator.apiserver.webhooks import CallFailed, Hook, WebhookClient, WebhookVerdict
from simulator.apiserver.wire import Json, encode

_log = structlog.get_logger(__name__)
_UNREVIEWED = (MUTATING, VALIDATING, DEFINITIONS)
_PREFIX = "webhook.admission.k8s.io"


class Admission:
    """Calls the webhooks of the configurations in the store."""

    def __init__(self, store: Store, client: WebhookClient, new_uid: Callable[[], str]) -> None:
        self._store = store
        self._client = client
        self._new_uid = new_uid

    async def mutate(self, operation: Operation, item: Json) -> Json:
        """The object after the mutating webhooks."""
        trail = operation.call.trail
        for at, hook in enumerate(self._hooks(MUTATING, operation)):
            verdict = await self._query(hook, operation, item)
            if verdict is None:
                continue
            changed = _patched(operation.call.target.resource, item, verdict.operations())
            label = f"{_PREFIX}/round_0_index_{at}"
            noted: Json = {"configuration": hook.configuration, "webhook": hook.name}
            trail.annotate(f"mutation.{label}", noted | {"mutated": changed != item})
            if changed != item:  # a real API server notes it from audit level Request on
                noted |= {"patch": verdict.operations(), "patchType": "JSONPatch"}
                trail.annotate(f"patch.{label}", noted)
            item = changed
        return item

    async def validate(self, operation: Operation, item: Json | None) -> None:
        """Call the validating webhooks."""
        hooks = self._hooks(VALIDATING, operation)
        await asyncio.gather(*(self._query(hook, operation, item) for hook in hooks))

    async def _query(
        self, hook: Hook, operation: Operation, item: Json | None
    ) -> WebhookVerdict | None:
        """A webhook's consent; None where it isn't asked, or fails and may. StatusError if not."""
        if not self._concerns(hook, operation, item):
            return None
        trail = operation.call.trail
        try:
            verdict = await self._client.review(hook, operation, item, self._new_uid())
        except CallFailed as error:
            text = f'failed calling webhook "{hook.name}": {error}'
            _log.warning("webhook-call-failed", open=hook.ignores_failures, problem=text)
            if not hook.ignores_failures:
                raise internal(text) from error
            trail.annotate(f"failed-open.{_PREFIX}/{hook.name}", hook.name)
            return None
        trail.warnings |= dict.fromkeys(verdict.warnings)
        for name, value in verdict.audit_annotations.items():
            trail.annotate(f"{hook.name}/{name}", value)
        if not verdict.allowed:
            raise refusal(hook.name, verdict.status)
        return verdict

    def _concerns(self, hook: Hook, operation: Operation, item: Json | None) -> bool:
        """Whether to call a webhook; a condition without a value counts by failurePolicy."""
        namespace = self._store.get(NAMESPACES, operation.namespace)
        if not hook.concerns(operation, item, labels_of(namespace)):
            return False
        try:
            return hook.conditions_hold(operation, item)
        except CelError as problem:
            if hook.ignores_failures:
                return False
            resource = operation.call.target.resource
            raise forbidden(resource, operation.name, str(problem)) from problem

    def _hooks(self, resource: Resource, operation: Operation) -> list[Hook]:
        if operation.call.target.resource in _UNREVIEWED:
            return []
        return [
            Hook(configuration["metadata"]["name"], webhook, validating=resource is VALIDATING)
            for configuration in self._store.all(resource)
            for webhook in configuration.get("webhooks") or []
        ]


def _patched(resource: Resource, item: Json, operations: list[Json]) -> Json:
    try:
        return with_defaults(resource, apply_json_patch(item, operations)) if operations else item
    except StatusError as error:
        raise internal(error.message) from error


def with_defaults(resource: Resource, item: Json) -> Json:
    """The object with the defaults of its kind."""
    if resource is PODS:
        pods.set_defaults(item)
    elif resource is NODES:
        status = item.setdefault("status", {})
        for name in ("capacity", "allocatable"):
            if amounts := status.get(name):
                status[name] = {key: str(value) for key, value in amounts.items()}
    return item


def apply_json_patch(item: Json, operations: list[Json]) -> Json:
    """RFC 6902, through the package jsonpatch; StatusError for a patch that does not fit."""
    try:
        result: Json = jsonpatch.JsonPatch(operations).apply(item)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError) as error:
        raise StatusError(422, f"the patch can't be applied: {error}") from error
    return result


def refusal(webhook: str, given: Json) -> StatusError:
    """The error of a request that a webhook denies (`ToStatusErr` of `k8s.io/apiserver`)."""
    denied = f'admission webhook "{webhook}" denied the request'
    explanation = given.get("message") or given.get("reason")
    return StatusError(
        max(given.get("code") or 0, 400),
        f"{denied}: {explanation}" if explanation else f"{denied} without explanation",
        reason=given.get("reason", ""),
    )


class AuditLog:
    """The audit log: one `audit.k8s.io/v1` Event per line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, verb: str, call: ApiCall, code: int) -> None:
        """Write one entry."""
        target = call.target
        reference = {"resource": target.resource.plural, "apiGroup": target.resource.group}
        reference |= {"namespace": target.namespace, "name": target.name}
        entry: Json = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "auditID": str(uuid4()),
            "stage": "ResponseComplete",
            "verb": verb,
            "user": call.identity.user_info(),
            "objectRef": reference,
            "responseStatus": {"code": code},
            "annotations": call.trail.annotations,
        }
        with self._path.open("ab") as file:
            file.write(encode(entry) + b"\n")
