"""Webhook configurations: their defaults, what makes one invalid, and which requests they concern.

Read: `rules`, `namespaceSelector`, `objectSelector`, `failurePolicy`, `timeoutSeconds`,
`reinvocationPolicy`, `clientConfig.url` and `.service` with `caBundle`. `matchPolicy` makes no
difference, since each resource is served in one version. `matchConditions` are evaluated by `cel`.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from cryptography import x509

from simulator.apiserver import names, reviews, selectors, status
from simulator.apiserver.cel import CompilationError, EvaluationError, compile_expression
from simulator.apiserver.http_client import WebhookAddress
from simulator.apiserver.reviews import Attributes
from simulator.apiserver.status import Cause
from simulator.apiserver.wire import Json

_SCOPES = ("*", "Cluster", "Namespaced")


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of one configuration.

    Args:
        configuration: name of the configuration it stands in.
        spec: the webhook's entry, defaults filled in.
    """

    configuration: str
    spec: Json

    @property
    def name(self) -> str:
        """Its name, as messages quote it."""
        return str(self.spec["name"])

    @property
    def ignores_failures(self) -> bool:
        """Whether a call that fails lets the request pass."""
        return bool(self.spec.get("failurePolicy") == "Ignore")

    @property
    def reinvocable(self) -> bool:
        """Whether it is asked again when later webhooks changed the object."""
        return bool(self.spec.get("reinvocationPolicy") == "IfNeeded")

    @property
    def timeout(self) -> int:
        """Seconds it has to answer."""
        return int(self.spec.get("timeoutSeconds") or 10)

    def concerns(
        self, attributes: Attributes, item: Json | None, namespace_labels: Mapping[str, str]
    ) -> bool:
        """Whether it is to be asked about a request."""
        if not any(_rule_fits(rule, attributes) for rule in self.spec.get("rules") or []):
            return False
        if not selectors.matches_object(self.spec.get("namespaceSelector"), namespace_labels):
            return False
        selector = self.spec.get("objectSelector")
        return any(
            selectors.matches_object(selector, (one.get("metadata") or {}).get("labels") or {})
            for one in (item, attributes.old)
            if one is not None
        )

    def conditions_hold(self, attributes: Attributes, item: Json | None) -> bool:
        """Whether its match conditions let the request reach it."""
        scope = {
            "object": item,
            "oldObject": attributes.old,
            "request": reviews.request_fields("", attributes),
        }
        problem: EvaluationError | None = None
        for condition in self.spec.get("matchConditions") or []:
            try:
                if not compile_expression(condition["expression"]).holds(scope):
                    return False
            except EvaluationError as error:
                text = f"expression '{condition['expression']}' resulted in error: {error}"
                problem = problem or EvaluationError(text)
        if problem is not None:
            raise problem
        return True

    def endpoint(self, services: Mapping[str, str]) -> WebhookAddress:
        """Where it is called.

        Args:
            services: `host:port` of Services, by `name.namespace.svc` or `name`.
        """
        config = self.spec["clientConfig"]
        roots = _bundle(config)
        service = config.get("service")
        if not service:
            split = urlsplit(config["url"])
            host = split.hostname or ""
            url = _with_timeout(config["url"], self.timeout)
            return WebhookAddress(url, host, split.port or 443, host, roots)
        server_name = f"{service['name']}.{service['namespace']}.svc"
        mapped = services.get(server_name) or services.get(service["name"]) or ""
        host, _, port = mapped.rpartition(":")
        path = service.get("path") or ""
        url = f"https://{server_name}:{service.get('port') or 443}{path}"
        dial = (host, int(port)) if host else (server_name, service.get("port") or 443)
        return WebhookAddress(_with_timeout(url, self.timeout), *dial, server_name, roots)


def _with_timeout(url: str, seconds: int) -> str:
    return f"{url}{'&' if '?' in url else '?'}timeout={seconds}s"


def _bundle(config: Json) -> bytes:
    return b64decode(config.get("caBundle") or "")


def _rule_fits(rule: Json, attributes: Attributes) -> bool:
    resource = attributes.resource
    plural = resource.plural
    wanted = {plural, "*"} if not attributes.subresource else set()
    full = f"{plural}/{attributes.subresource}" if attributes.subresource else plural
    wanted |= {full, "*/*", f"{plural}/*"} | (
        {f"*/{attributes.subresource}"} if attributes.subresource else set()
    )
    scope = rule.get("scope") or "*"
    fits_scope = scope == "*" or (scope == "Namespaced") == resource.namespaced
    return (
        fits_scope
        and _any_of(rule.get("operations"), attributes.operation)
        and _any_of(rule.get("apiGroups"), resource.group)
        and _any_of(rule.get("apiVersions"), resource.version)
        and bool(wanted & set(rule.get("resources") or []))
    )


def _any_of(values: Iterable[str] | None, wanted: str) -> bool:
    listed = set(values or ())
    return wanted in listed or "*" in listed


def set_defaults(configuration: Json, *, mutating: bool) -> None:
    """Fills in what admissionregistration/v1 defaults."""
    for webhook in configuration.get("webhooks") or []:
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if mutating:
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in webhook.get("rules") or []:
            rule.setdefault("scope", "*")
        if service := (webhook.get("clientConfig") or {}).get("service"):
            service.setdefault("port", 443)


def validate(configuration: Json, kind: str) -> None:
    """Refuses a configuration that a real API server would not store."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for at, webhook in enumerate(configuration.get("webhooks") or []):
        path = f"webhooks[{at}]"
        causes += _webhook_causes(path, webhook)
        name = webhook.get("name") or ""
        if name in seen:
            causes.append(
                Cause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
            )
        seen.add(name)
    if causes:
        group = "admissionregistration.k8s.io"
        raise status.invalid(group, kind, configuration["metadata"]["name"], causes)


def _webhook_causes(path: str, webhook: Json) -> Iterator[Cause]:
    name = webhook.get("name") or ""
    if names.subdomain_problem(name) or name.count(".") < 2:
        why = "should be a domain with at least three segments separated by dots"
        yield status.invalid_value(f"{path}.name", name, why)
    effects = webhook.get("sideEffects")
    if effects is None:
        why = "must specify one of None, NoneOnDryRun"
        yield status.required(f"{path}.sideEffects", why)
    elif effects not in ("None", "NoneOnDryRun"):
        yield status.unsupported(f"{path}.sideEffects", effects, ("None", "NoneOnDryRun"))
    versions = webhook.get("admissionReviewVersions") or []
    if not versions:
        why = "must specify one of v1, v1beta1"
        yield status.required(f"{path}.admissionReviewVersions", why)
    elif "v1" not in versions:
        why = "must include at least one of v1, v1beta1"
        yield status.invalid_value(f"{path}.admissionReviewVersions", versions, why)
    seconds = webhook.get("timeoutSeconds", 10)
    if not isinstance(seconds, int) or not 1 <= seconds <= 30:
        why = "the timeout value must be between 1 and 30 seconds"
        yield status.invalid_value(f"{path}.timeoutSeconds", seconds, why)
    if webhook.get("failurePolicy", "Fail") not in ("Fail", "Ignore"):
        policies = ("Fail", "Ignore")
        yield status.unsupported(f"{path}.failurePolicy", webhook["failurePolicy"], policies)
    yield from _condition_causes(path, webhook)
    yield from _rule_causes(path, webhook)
    yield from _client_causes(f"{path}.clientConfig", webhook.get("clientConfig") or {})


def _condition_causes(path: str, webhook: Json) -> Iterator[Cause]:
    for at, condition in enumerate(webhook.get("matchConditions") or []):
        where = f"{path}.matchConditions[{at}]"
        if not condition.get("name"):
            yield status.required(f"{where}.name")
        expression = condition.get("expression") or ""
        try:
            compile_expression(expression)
        except CompilationError as problem:
            why = f"compilation failed: {problem}"
            yield status.invalid_value(f"{where}.expression", expression, why)


def _rule_causes(path: str, webhook: Json) -> Iterator[Cause]:
    for at, rule in enumerate(webhook.get("rules") or []):
        for name in ("operations", "apiGroups", "apiVersions", "resources"):
            if not rule.get(name):
                yield status.required(f"{path}.rules[{at}].{name}")
        if rule.get("scope", "*") not in _SCOPES:
            yield status.unsupported(f"{path}.rules[{at}].scope", rule["scope"], _SCOPES)


def _client_causes(path: str, config: Json) -> Iterator[Cause]:
    if bool(config.get("url")) == bool(config.get("service")):
        yield status.required(path, "exactly one of url or service is required")
    elif url := config.get("url"):
        split = urlsplit(url)
        if split.scheme != "https":
            why = f"'https' is the only allowed URL scheme{_FORM}"
            yield status.invalid_value(f"{path}.url", split.scheme, why)
        elif not split.hostname:
            yield status.invalid_value(f"{path}.url", url, f"host must be specified{_FORM}")
        elif split.query or split.fragment:
            why = "fragments and query parameters are not permitted in the URL"
            yield status.invalid_value(f"{path}.url", url, why)
    else:
        for name in ("name", "namespace"):
            if not config["service"].get(name):
                yield status.required(f"{path}.service.{name}", f"service {name} is required")
    if config.get("caBundle") and not _is_bundle(config):
        why = "unable to load root certificates: unable to parse bytes as PEM block"
        yield status.invalid_value(f"{path}.caBundle", config["caBundle"], why)


_FORM = "; desired format: https://host[/path]"


def _is_bundle(config: Json) -> bool:
    try:
        return bool(x509.load_pem_x509_certificates(_bundle(config)))
    except (ValueError, binascii.Error):
        return False
