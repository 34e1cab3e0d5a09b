"""Dynamic admission: mutating webhooks in sequence, then validating ones in parallel.

As in `k8s.io/apiserver/pkg/admission/plugin/webhook`: configurations in the order of their names;
after each patch the object is decoded and defaulted again; a webhook with `reinvocationPolicy:
IfNeeded` is asked once more when a later one changed the object. A call that fails counts by
`failurePolicy`, and so does an answer that can't be decoded; a patch that can't be applied is
always an internal error.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import uuid4

import structlog

from simulator.apiserver import patches, reviews, status
from simulator.apiserver.audit import Trail
from simulator.apiserver.cel import EvaluationError
from simulator.apiserver.http_client import CallFailed, HttpResponse, WebhookClient
from simulator.apiserver.resources import MUTATING, NAMESPACES, VALIDATING, Resource
from simulator.apiserver.reviews import Attributes, InvalidAnswer, WebhookVerdict
from simulator.apiserver.status import StatusError
from simulator.apiserver.store import Store
from simulator.apiserver.webhook_configs import Hook
from simulator.apiserver.wire import Json

_log = structlog.get_logger(__name__)
Redefault: TypeAlias = Callable[[Json], Json]
_PREFIX = "webhook.admission.k8s.io"
_CLIENT_TEXTS = {
    401: "Unauthorized",
    403: "unknown",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be"
    " processing the request",
}


class _FailedOpen(Exception):
    """A call failed, and the webhook's policy lets the request pass."""


@dataclass(slots=True)
class _Run:
    """One request on its way through the webhooks."""

    attributes: Attributes
    labels: Mapping[str, str]
    trail: Trail


class Admission:
    """Calls the webhooks of the configurations in the store."""

    def __init__(
        self,
        store: Store,
        services: Mapping[str, str],
        new_uid: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._store = store
        self._services = services
        self._new_uid = new_uid
        self.client = WebhookClient()

    async def mutate(
        self, attributes: Attributes, item: Json, redefault: Redefault, trail: Trail
    ) -> Json:
        """The object after the mutating webhooks."""
        hooks = self._hooks(MUTATING)
        if not hooks:
            return item
        run = _Run(attributes, self._namespace_labels(attributes), trail)
        asked: list[tuple[int, Hook]] = []
        again: set[int] = set()
        for at, hook in enumerate(hooks):
            if not _concerns(hook, run, item):
                continue
            result = await self._mutate_once(hook, item, redefault, run, f"round_0_index_{at}")
            if result is not None:
                item = result
                again |= {earlier for earlier, one in asked if one.reinvocable}
            asked.append((at, hook))
        for at, hook in asked:
            if at in again and _concerns(hook, run, item):
                result = await self._mutate_once(hook, item, redefault, run, f"round_1_index_{at}")
                item = item if result is None else result
        return item

    async def validate(self, attributes: Attributes, item: Json | None, trail: Trail) -> None:
        """Call the validating webhooks."""
        hooks = self._hooks(VALIDATING)
        if not hooks:
            return
        run = _Run(attributes, self._namespace_labels(attributes), trail)
        concerned = [hook for hook in hooks if _concerns(hook, run, item)]
        outcomes = await asyncio.gather(
            *(self._validate_once(hook, item, run) for hook in concerned), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _mutate_once(
        self, hook: Hook, item: Json, redefault: Redefault, run: _Run, label: str
    ) -> Json | None:
        """The changed object, or None where the webhook changed nothing."""
        try:
            verdict = await self._query(hook, item, run, mutating=True)
        except _FailedOpen:
            run.trail.annotate(f"failed-open.mutation.{_PREFIX}/{label}", hook.name)
            return None
        self._note(hook, verdict, run.trail)
        changed = _apply(verdict, item, redefault) if verdict.allowed else None
        run.trail.annotate(
            f"mutation.{_PREFIX}/{label}",
            {
                "configuration": hook.configuration,
                "webhook": hook.name,
                "mutated": changed is not None,
            },
        )
        if not verdict.allowed:
            raise refusal(hook.name, verdict.status)
        if changed is not None:  # a real API server notes it from audit level Request on
            run.trail.annotate(
                f"patch.{_PREFIX}/{label}",
                {
                    "configuration": hook.configuration,
                    "webhook": hook.name,
                    "patch": verdict.patch,
                    "patchType": "JSONPatch",
                },
            )
        return changed

    async def _validate_once(self, hook: Hook, item: Json | None, run: _Run) -> None:
        try:
            verdict = await self._query(hook, item, run, mutating=False)
        except _FailedOpen:
            run.trail.annotate(f"failed-open.validating.{_PREFIX}/{hook.name}", hook.name)
            return
        self._note(hook, verdict, run.trail)
        if not verdict.allowed:
            raise refusal(hook.name, verdict.status)

    async def _query(
        self, hook: Hook, item: Json | None, run: _Run, *, mutating: bool
    ) -> WebhookVerdict:
        uid = self._new_uid()
        body = reviews.request(uid, run.attributes, item)
        try:
            endpoint = hook.endpoint(self._services)
            answer = await self.client.post(endpoint, body, hook.timeout)
            _check_code(answer)
            return reviews.verify(answer.body, uid, mutating=mutating)
        except CallFailed as error:
            problem = f"failed to call webhook: {error}"
        except InvalidAnswer as error:
            problem = f"received invalid webhook response: {error}"
        text = f'failed calling webhook "{hook.name}": {problem}'
        _log.warning("webhook-call-failed", open=hook.ignores_failures, problem=text)
        if hook.ignores_failures:
            raise _FailedOpen
        raise status.internal(text)

    @staticmethod
    def _note(hook: Hook, verdict: WebhookVerdict, trail: Trail) -> None:
        for warning in verdict.warnings:
            trail.warn(warning)
        for name, value in verdict.annotations.items():
            trail.annotate(f"{hook.name}/{name}", value)

    def _hooks(self, resource: Resource) -> list[Hook]:
        return [
            Hook(configuration["metadata"]["name"], webhook)
            for configuration in self._store.all(resource)
            for webhook in configuration.get("webhooks") or []
        ]

    def _namespace_labels(self, attributes: Attributes) -> Mapping[str, str]:
        found = self._store.get(NAMESPACES, attributes.namespace) if attributes.namespace else None
        return (found or {}).get("metadata", {}).get("labels") or {}


def _concerns(hook: Hook, run: _Run, item: Json | None) -> bool:
    """Whether to call a webhook; a condition without a value counts by failurePolicy."""
    attributes = run.attributes
    if not hook.concerns(attributes, item, run.labels):
        return False
    try:
        return hook.conditions_hold(attributes, item)
    except EvaluationError as problem:
        if hook.ignores_failures:
            return False
        resource = attributes.resource
        raise status.forbidden(
            resource.group, resource.plural, attributes.name, str(problem)
        ) from problem


def _apply(verdict: WebhookVerdict, item: Json, redefault: Redefault) -> Json | None:
    if verdict.patch is None:
        return None
    try:
        changed = redefault(patches.apply_json_patch(item, verdict.patch))
    except patches.NotApplicable as error:
        raise status.internal(str(error)) from error
    except StatusError as error:
        raise status.internal(error.message) from error
    return changed if changed != item else None


def _check_code(answer: HttpResponse) -> None:
    """Raise CallFailed for an answer that is not 2xx, with the text of client-go."""
    if 200 <= answer.status < 300:
        return
    shown = answer.body[:2048].decode("utf-8", "replace").strip()
    if answer.status in _CLIENT_TEXTS:
        raise CallFailed(_CLIENT_TEXTS[answer.status])
    if answer.status >= 500:
        text = shown or "unknown"
        raise CallFailed(
            f'an error on the server ("{text}") has prevented the request from succeeding'
        )
    raise CallFailed("the server rejected our request for an unknown reason")


def refusal(webhook: str, given: Json) -> StatusError:
    """The error of a request that a webhook denies (`ToStatusErr` of `k8s.io/apiserver`)."""
    denied = f'admission webhook "{webhook}" denied the request'
    code = given.get("code") or 0
    reason = str(given.get("reason") or "")
    explanation = given.get("message") or reason
    return StatusError(
        max(code, 400),
        reason,
        f"{denied}: {explanation}" if explanation else f"{denied} without explanation",
        details=given.get("details"),
        metadata=given.get("metadata"),
    )
