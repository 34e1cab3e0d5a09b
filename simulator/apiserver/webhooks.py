"""The webhooks of the stored configurations: which requests they concern, and how one is called.

Read: `rules`, `namespaceSelector`, `objectSelector`, `matchConditions`, `failurePolicy`,
`timeoutSeconds`, `clientConfig.url` and `.service` with `caBundle`. `matchPolicy` makes no
difference, since each resource is served in one version.
"""

import asyncio
import ssl
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import httpx2
import msgspec

from simulator.apiserver.calls import Operation
from simulator.apiserver.cel import CelError, compile_expression
from simulator.apiserver.reading import labels_of
from simulator.apiserver.resources import Resource
from simulator.apiserver.wire import Json, encode

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
    """The response in a webhook's answer."""

    uid: str
    allowed: bool
    patch: bytes | None = None
    patch_type: Literal["JSONPatch"] | None = None
    status: Json = {}
    warnings: list[str] = []
    audit_annotations: dict[str, str] = {}

    def operations(self) -> list[Json]:
        """The JSON Patch; empty where there is nothing to do."""
        return msgspec.json.decode(self.patch or b"[]", type=list[Json])


class _Review(msgspec.Struct, rename="camel"):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    response: WebhookVerdict


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of one configuration.

    Args:
        configuration: name of the configuration it stands in.
        spec: the webhook's entry.
        validating: whether the configuration is a validating one.
    """

    configuration: str
    spec: Json
    validating: bool

    @property
    def name(self) -> str:
        """Its name, as messages quote it."""
        return str(self.spec["name"])

    @property
    def ignores_failures(self) -> bool:
        """Whether a call that fails lets the request pass."""
        return bool(self.spec.get("failurePolicy") == "Ignore")

    def concerns(
        self, operation: Operation, item: Json | None, namespace_labels: Mapping[str, str]
    ) -> bool:
        """Whether it is to be asked about a request, but for its conditions."""
        if not any(_rule_fits(rule, operation) for rule in self.spec.get("rules") or []):
            return False
        if not matches_labels(self.spec.get("namespaceSelector") or {}, namespace_labels):
            return False
        selector = self.spec.get("objectSelector") or {}
        objects = [one for one in (item, operation.old) if one is not None]
        return any(matches_labels(selector, labels_of(one)) for one in objects)

    def conditions_hold(self, operation: Operation, item: Json | None) -> bool:
        """Whether its match conditions let the request reach it (CelError if one has no value)."""
        request = operation.as_request()
        scope = {"object": item, "oldObject": operation.old, "request": request}
        problem: CelError | None = None
        for condition in self.spec.get("matchConditions") or []:
            try:
                if not compile_expression(condition["expression"]).holds(scope):
                    return False
            except CelError as error:
                problem = error
        if problem is not None:
            raise problem
        return True


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
    found = labels.get(requirement["key"])
    match requirement["operator"]:
        case "In":
            return found in requirement["values"]
        case "NotIn":
            return found not in requirement["values"]
        case operator:
            return (found is not None) is (operator == "Exists")


class WebhookClient:
    """Calls webhooks over verified TLS: one client, with its connections, for each CA bundle."""

    def __init__(self, services: Mapping[str, str]) -> None:
        """Call Services at these `host:port`, by `name.namespace.svc`."""
        self._services = services
        self._clients: dict[str, httpx2.AsyncClient] = {}

    async def review(
        self, hook: Hook, operation: Operation, item: Json | None, uid: str
    ) -> WebhookVerdict:
        """Ask a webhook; CallFailed for no answer, or one that a real API server refuses."""
        resource = operation.call.target.resource
        request: Json = {"uid": uid} | operation.as_request()
        request["object"] = _raw(resource, item)
        request["oldObject"] = _raw(resource, operation.old)
        request |= {"dryRun": operation.call.dry_run, "options": operation.options()}
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        answer = await self._post(hook, encode(review | {"request": request}) + b"\n")
        try:
            verdict = msgspec.json.decode(answer, type=_Review).response
            verdict.operations()
        except msgspec.DecodeError as error:
            raise CallFailed(f"received invalid webhook response: {error}") from error
        if verdict.uid != uid:
            problem = f'expected response.uid="{uid}", got "{verdict.uid}"'
        elif (verdict.patch is None) != (verdict.patch_type is None):
            problem = "response.patch and response.patchType go together"
        elif verdict.patch and hook.validating:
            problem = "a validating webhook may not patch"
        else:
            return verdict
        raise CallFailed(f"received invalid webhook response: {problem}")

    async def _post(self, hook: Hook, body: bytes) -> bytes:
        """Post a JSON body and read the whole answer."""
        seconds = hook.spec.get("timeoutSeconds", 10)
        config = hook.spec["clientConfig"]
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
        """Close the connections."""
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


def _raw(resource: Resource, item: Json | None) -> msgspec.Raw | None:
    return None if item is None else msgspec.Raw(resource.encode(item))


def _service_url(service: Json) -> str:
    where = f"{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}"
    return f"https://{where}{service.get('path', '')}"
