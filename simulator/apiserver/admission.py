"""Dynamic admission: mutating webhooks in sequence, then validating ones in parallel.

As in `k8s.io/apiserver/pkg/admission/plugin/webhook`. `matchPolicy` makes no difference, since each
resource is served in one version.
"""

import asyncio
import ssl
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import jsonpatch
import msgspec
import structlog

from simulator.apiserver import pods
from simulator.apiserver.calls import Operation, StatusError, internal
from simulator.apiserver.crd import compile_expression
from simulator.apiserver.reading import labels_of
from simulator.apiserver.resources import (
    DEFINITIONS,
    MUTATING,
    NAMESPACES,
    NODES,
    PODS,
    VALIDATING,
    Json,
    Resource,
)
from simulator.apiserver.store import Store, encode

_log = structlog.get_logger(__name__)
_UNREVIEWED = (MUTATING, VALIDATING, DEFINITIONS)
_HEADERS = {
    "User-Agent": "kube-apiserver-admission",
    "Accept": "application/json, */*",
    "Content-Type": "application/json",
    "Accept-Encoding": "gzip",
}
_IDLE_SECONDS = 90.0


class CallFailed(Exception):
    """The webhook gave no answer that can be used; the text says why."""


class WebhookVerdict(msgspec.Struct, rename="camel"):
    uid: str
    allowed: bool
    patch: bytes | None = None
    status: Json = {}
    warnings: list[str] = []

    def operations(self) -> list[Json]:
        """The JSON Patch; empty where there is nothing to do."""
        return msgspec.json.decode(self.patch or b"[]", type=list[Json])


class _Review(msgspec.Struct, rename="camel"):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    response: WebhookVerdict


def _concerns(
    hook: Json, operation: Operation, item: Json | None, namespace_labels: Mapping[str, str]
) -> bool:
    """Whether a webhook is asked about a request (CelError if a condition has no value)."""
    if not any(_rule_fits(rule, operation) for rule in hook.get("rules") or []):
        return False
    if not matches_labels(hook.get("namespaceSelector") or {}, namespace_labels):
        return False
    selector = hook.get("objectSelector") or {}
    objects = [one for one in (item, operation.old) if one is not None]
    scope = {"object": item, "oldObject": operation.old, "request": operation.as_request()}
    return any(matches_labels(selector, labels_of(one)) for one in objects) and all(
        compile_expression(condition["expression"]).holds(scope)
        for condition in hook.get("matchConditions") or []
    )


def _rule_fits(rule: Json, operation: Operation) -> bool:
    resource, subresource = operation.call.target.resource, operation.call.target.subresource
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return (
        rule.get("scope", "*") in ("*", "Namespaced" if resource.namespaced else "Cluster")
        and _lists(rule["operations"], operation.kind)
        and _lists(rule["apiGroups"], resource.group)
        and _lists(rule["apiVersions"], resource.version)
        and (plural in rule["resources"] or (not subresource and "*" in rule["resources"]))
    )


def _lists(values: Iterable[str], wanted: str) -> bool:
    return wanted in values or "*" in values


def matches_labels(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether labels fit a `LabelSelector` object (an empty one fits everything)."""
    wanted: Json = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items() and all(
        _meets(requirement, labels) for requirement in selector.get("matchExpressions") or []
    )


def _meets(requirement: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement["key"])
    match requirement["operator"]:
        case "In":
            return value in requirement["values"]
        case "NotIn":
            return value not in requirement["values"]
        case operator:
            return (value is not None) is (operator == "Exists")


class WebhookClient:
    """Calls webhooks over verified TLS: one client, with its connections, for each CA bundle."""

    def __init__(self, services: Mapping[str, str]) -> None:
        """Call Services at these `host:port`, by `name.namespace.svc`."""
        self._services = services
        self._clients: dict[str, httpx2.AsyncClient] = {}

    async def review(self, hook: Json, operation: Operation, item: Json | None) -> WebhookVerdict:
        """Ask a webhook; CallFailed for no answer, or one that a real API server refuses."""
        uid = str(uuid4())
        request: Json = {"uid": uid} | operation.as_request()
        request |= {"object": item, "oldObject": operation.old}
        request |= {"dryRun": operation.call.dry_run, "options": operation.options()}
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        answer = await self._post(hook, encode(review | {"request": request}) + b"\n")
        try:
            verdict = msgspec.json.decode(answer, type=_Review).response
            verdict.operations()
        except msgspec.DecodeError as error:
            # An answer that can't be used counts by `failurePolicy`, as a call that fails.
            raise CallFailed(f"received invalid webhook response: {error}") from error
        if verdict.uid != uid:
            problem = f'expected response.uid="{uid}", got "{verdict.uid}"'
            raise CallFailed(f"received invalid webhook response: {problem}")
        return verdict

    async def _post(self, hook: Json, body: bytes) -> bytes:
        seconds = hook.get("timeoutSeconds", 10)
        config = hook["clientConfig"]
        url = config.get("url") or _service_url(config["service"])
        url, host = f"{url}?timeout={seconds}s", urlsplit(url).hostname or ""
        dialled = httpx2.URL(url)
        if mapped := self._services.get(host):
            address, _, port = mapped.rpartition(":")
            dialled = dialled.copy_with(host=address, port=int(port))
        try:
            async with asyncio.timeout(seconds):
                answer = await self._client(config.get("caBundle") or "").post(
                    dialled,
                    content=body,
                    headers={"Host": urlsplit(url).netloc},
                    extensions={"sni_hostname": host},
                )
        except TimeoutError:
            problem = "context deadline exceeded"
        except httpx2.HTTPError as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if answer.is_success:
                return answer.content
            problem = f"status {answer.status_code}: {answer.text[:2048].strip()}"
        raise CallFailed(f'failed to call webhook: Post "{url}": {problem}')

    def _client(self, bundle: str) -> httpx2.AsyncClient:
        if bundle not in self._clients:
            roots = b64decode(bundle).decode("ascii", "replace")
            self._clients[bundle] = httpx2.AsyncClient(
                verify=ssl.create_default_context(cadata=roots or None),
                headers=_HEADERS,
                timeout=None,  # `_post` has one for the whole exchange
                trust_env=False,
                limits=httpx2.Limits(max_connections=None, keepalive_expiry=_IDLE_SECONDS),
            )
        return self._clients[bundle]

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


def _service_url(service: Json) -> str:
    where = f"{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}"
    return f"https://{where}{service.get('path', '')}"


class Admission:
    """Calls the webhooks of the configurations in the store."""

    def __init__(self, store: Store, client: WebhookClient) -> None:
        self._store = store
        self._client = client

    async def mutate(self, operation: Operation, item: Json) -> Json:
        for hook in self._hooks(MUTATING, operation):
            verdict = await self._query(hook, operation, item)
            if verdict is not None and (operations := verdict.operations()):
                item = jsonpatch.JsonPatch(operations).apply(item)
                item = with_defaults(operation.call.target.resource, item)
                operation.call.patches.extend(operations)
        return item

    async def validate(self, operation: Operation, item: Json | None) -> None:
        hooks = self._hooks(VALIDATING, operation)
        await asyncio.gather(*(self._query(hook, operation, item) for hook in hooks))

    async def _query(
        self, hook: Json, operation: Operation, item: Json | None
    ) -> WebhookVerdict | None:
        """A webhook's consent; None where it isn't asked, or fails and may. StatusError if not."""
        namespace = self._store.get(NAMESPACES, operation.namespace)
        if not _concerns(hook, operation, item, labels_of(namespace)):
            return None
        try:
            verdict = await self._client.review(hook, operation, item)
        except CallFailed as error:
            text = f'failed calling webhook "{hook["name"]}": {error}'
            is_open = hook.get("failurePolicy") == "Ignore"
            _log.warning("webhook-call-failed", open=is_open, problem=text)
            if not is_open:
                raise internal(text) from error
            return None
        operation.call.warnings.update(dict.fromkeys(verdict.warnings))
        if not verdict.allowed:
            raise refusal(hook["name"], verdict.status)
        return verdict

    def _hooks(self, resource: Resource, operation: Operation) -> list[Json]:
        if operation.call.target.resource in _UNREVIEWED:
            return []
        return [
            webhook
            for configuration in self._store.all(resource)  # in the order of their names
            for webhook in configuration.get("webhooks") or []
        ]


def with_defaults(resource: Resource, item: Json) -> Json:
    if resource is PODS:
        pods.set_defaults(item)
    elif resource is NODES:
        status = item.setdefault("status", {})
        for name in ("capacity", "allocatable"):
            if amounts := status.get(name):
                status[name] = {key: str(value) for key, value in amounts.items()}
    return item


def refusal(webhook: str, given: Json) -> StatusError:
    """The error of a request that a webhook denies (`ToStatusErr` of `k8s.io/apiserver`)."""
    denied = f'admission webhook "{webhook}" denied the request'
    explanation = given.get("message") or given.get("reason")
    return StatusError(
        max(given.get("code") or 0, 400),
        f"{denied}: {explanation}" if explanation else f"{denied} without explanation",
        reason=given.get("reason", ""),
    )
