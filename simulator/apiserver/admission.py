"""Dynamic admission: mutating webhooks in sequence, then validating ones in parallel.

As in `k8s.io/apiserver/pkg/admission/plugin/webhook`: configurations in the order of their names;
after each patch the object is defaulted again. A call that fails counts by `failurePolicy`, and so
does an answer that can't be used; a patch that can't be applied is always an internal error.
Not done: `reinvocationPolicy`.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import jsonpatch
import jsonpointer
import structlog

from simulator.apiserver.cel import CelError
from simulator.apiserver.identity import Identity
from simulator.apiserver.reading import labels_of
from simulator.apiserver.resources import MUTATING, NAMESPACES, VALIDATING, Resource, Target
from simulator.apiserver.status import StatusError, forbidden, internal
from simulator.apiserver.store import Store
from simulator.apiserver.webhooks import Attributes, CallFailed, Hook, Verdict, WebhookClient
from simulator.apiserver.wire import Json, encode

_log = structlog.get_logger(__name__)
Redefault: TypeAlias = Callable[[Json], Json]
_PREFIX = "webhook.admission.k8s.io"


@dataclass(slots=True)
class Trail:
    """What a request leaves: annotations for the audit log, warnings for the client."""

    annotations: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def annotate(self, name: str, value: object) -> None:
        """Add an annotation; objects become JSON, and the first value stays."""
        self.annotations.setdefault(name, value if isinstance(value, str) else json.dumps(value))


class Admission:
    """Calls the webhooks of the configurations in the store."""

    def __init__(self, store: Store, client: WebhookClient, new_uid: Callable[[], str]) -> None:
        self._store = store
        self._client = client
        self._new_uid = new_uid

    async def mutate(
        self, attributes: Attributes, item: Json, redefault: Redefault, trail: Trail
    ) -> Json:
        """The object after the mutating webhooks."""
        for at, hook in enumerate(self._hooks(MUTATING)):
            verdict = await self._query(hook, attributes, item, trail)
            if verdict is None:
                continue
            changed = _patched(item, verdict, redefault)
            label = f"{_PREFIX}/round_0_index_{at}"
            noted: Json = {"configuration": hook.configuration, "webhook": hook.name}
            trail.annotate(f"mutation.{label}", noted | {"mutated": changed != item})
            if changed != item:  # a real API server notes it from audit level Request on
                noted |= {"patch": verdict.operations(), "patchType": "JSONPatch"}
                trail.annotate(f"patch.{label}", noted)
            item = changed
        return item

    async def validate(self, attributes: Attributes, item: Json | None, trail: Trail) -> None:
        """Call the validating webhooks."""
        hooks = self._hooks(VALIDATING)
        await asyncio.gather(*(self._query(hook, attributes, item, trail) for hook in hooks))

    async def _query(
        self, hook: Hook, attributes: Attributes, item: Json | None, trail: Trail
    ) -> Verdict | None:
        """A webhook's consent; None where it isn't asked, or fails and may. StatusError if not."""
        if not self._concerns(hook, attributes, item):
            return None
        try:
            verdict = await self._client.review(hook, attributes, item, self._new_uid())
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

    def _concerns(self, hook: Hook, attributes: Attributes, item: Json | None) -> bool:
        """Whether to call a webhook; a condition without a value counts by failurePolicy."""
        namespace = self._store.get(NAMESPACES, attributes.namespace)
        if not hook.concerns(attributes, item, labels_of(namespace)):
            return False
        try:
            return hook.conditions_hold(attributes, item)
        except CelError as problem:
            if hook.ignores_failures:
                return False
            raise forbidden(attributes.resource, attributes.name, str(problem)) from problem

    def _hooks(self, resource: Resource) -> list[Hook]:
        return [
            Hook(configuration["metadata"]["name"], webhook, validating=resource is VALIDATING)
            for configuration in self._store.all(resource)
            for webhook in configuration.get("webhooks") or []
        ]


def _patched(item: Json, verdict: Verdict, redefault: Redefault) -> Json:
    operations = verdict.operations()
    if not operations:
        return item
    try:
        return redefault(apply_json_patch(item, operations))
    except StatusError as error:
        raise internal(error.message) from error


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
    """The audit log: one `audit.k8s.io/v1` Event per line, flushed at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, verb: str, target: Target, identity: Identity, code: int, trail: Trail) -> None:
        """Write one entry."""
        resource = target.resource
        reference = {"resource": resource.plural, "apiGroup": resource.group}
        reference |= {"namespace": target.namespace, "name": target.name}
        entry: Json = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "auditID": str(uuid4()),
            "stage": "ResponseComplete",
            "verb": verb,
            "user": identity.user_info(),
            "objectRef": reference,
            "responseStatus": {"code": code},
            "annotations": trail.annotations,
        }
        self._file.write(encode(entry) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
