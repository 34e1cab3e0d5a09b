"""What `accelbind doctor` checks about definitions of mappings, and webhook configurations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from accelbind.doctor.cluster import APPLY, Cluster, Json, name_of, part
from accelbind.doctor.model import Line, failed, ok, warning
from services.kube.objects import GROUP, PLURALS, decode_base64
from services.process.text import plain

NAME: Final = "accelbind"
_SUFFIX: Final = ".accelbind.dev"
_OTHER_SUITES: Final = ("fpga.mutator.webhooks.intel.com", "fpga.intel.com")
_SLOWEST: Final = 10


NOT_DEFINED: Final = "kinds of mappings are not defined"
_DEFINE: Final = "kubectl apply --server-side -k manifests/crd"
_OLD: Final = (
    "its objects are of v1, from before version 0.18 of Intel's suite: save them, delete the"
    f" definition, {_DEFINE}, and write them again as v2 (docs/migration.md)"
)
DEFINITIONS: Final[Mapping[str, tuple[str, int]]] = {
    "acceleratorfunctions": ("AcceleratorFunction", 3),
    "fpgaregions": ("FpgaRegion", 1),
}
"""Kind, and number of CEL rules of `spec` and of the name; a test compares the manifests."""


class Review(NamedTuple):
    """A kind of review that a configuration has to ask for; a test compares the paths."""

    kind: str
    resource: str
    paths: tuple[str, ...]
    loss: str
    """What is lost without."""


MUTATING, VALIDATING = KINDS = ("mutating", "validating")
_PODS, _MAPPINGS = "pods", "acceleratorfunctions"

REVIEWS: Final = (
    Review(MUTATING, _PODS, ("/mutate", "/pods"), "logical names are not replaced"),
    Review(VALIDATING, _PODS, ("/validate",), "changes by other webhooks are not checked"),
    Review(VALIDATING, _MAPPINGS, ("/validate-mapping",), "mappings that clash are accepted"),
)


@dataclass(frozen=True, slots=True)
class Hook:
    """One entry of a webhook configuration."""

    kind: str
    """Of `KINDS`."""
    configuration: str
    entry: Json

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.kind} {self.configuration}: {plain(str(self.entry.get('name')))}"

    @property
    def client(self) -> Json:
        """Its `clientConfig`."""
        return part(self.entry, "clientConfig")

    @property
    def bundle(self) -> bytes:
        """The CAs that it is verified by; empty if there are none."""
        return decode_base64(self.client.get("caBundle") or "")

    def covers(self, resource: str) -> bool:
        """Whether one of its rules covers a resource."""
        rules = self.entry.get("rules") or ()
        return any({resource, "*", "*/*"} & {*(rule.get("resources") or ())} for rule in rules)

    def asks_for(self, review: Review) -> bool:
        """Whether it is called for a kind of review."""
        return self.kind == review.kind and self.covers(review.resource)

    def is_ours(self, namespace: str) -> bool:
        """Whether it calls our webhook, which runs in this namespace."""
        if service := part(self.client, "service"):
            return bool(service.get("namespace") == namespace)
        name = str(self.entry.get("name", ""))
        return name.endswith(_SUFFIX) or self.configuration == NAME


def check_definitions(cluster: Cluster) -> Iterator[Line]:
    """Are both kinds of mappings defined?"""
    for plural, (kind, rules) in DEFINITIONS.items():
        name = f"{plural}.fpga.intel.com"
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        found = cluster.get(path)
        if found is None:
            yield failed(f"{name} is not defined: there can be no mappings", _DEFINE, NOT_DEFINED)
            continue
        lines = [*_definition_lines(name, found, kind, rules)]
        yield from lines or [ok(f"{name} is accelbind's")]


def _definition_lines(name: str, found: Json, kind: str, rules: int) -> Iterator[Line]:
    spec, status = part(found, "spec"), part(found, "status")
    if spec.get("scope") != "Namespaced" or part(spec, "names").get("kind") != kind:
        yield failed(f"{name} defines something other than {kind}s", _DEFINE)
        return
    versions = {one.get("name"): one for one in spec.get("versions") or ()}
    version: Json = versions.get("v2") or {}
    if not version.get("served"):
        todo = _OLD if "v1" in (status.get("storedVersions") or ()) else _DEFINE
        yield failed(f"{name} does not serve version v2", todo)
        return
    for one in status.get("conditions") or ():
        if one.get("type") in {"Established", "NamesAccepted"} and one.get("status") != "True":
            yield failed(f"{name}: {one['type']} is not true: {one.get('message')}", _DEFINE)
    properties = part(version, "schema", "openAPIV3Schema", "properties")
    ruled = (part(properties, "spec"), part(properties, "metadata", "properties", "name"))
    if sum(len(each.get("x-kubernetes-validations") or ()) for each in ruled) < rules:
        yield warning(
            f"{name} is not accelbind's (rules are missing): it accepts mappings that no pod can"
            " use",
            f"{_DEFINE}, which keeps all objects",
        )


def read_hooks(cluster: Cluster) -> list[Hook]:
    """The entries of all webhook configurations. Raises as `Cluster.get`."""
    return [
        Hook(kind, name_of(item), entry)
        for plural, kind in zip(PLURALS, KINDS, strict=True)
        for item in cluster.items(f"{GROUP}/{plural}")
        for entry in item.get("webhooks") or ()
        if isinstance(entry, dict)
    ]


def our_hooks(cluster: Cluster) -> list[Hook]:
    """The entries that call our webhook. Raises as `Cluster.get`."""
    return [hook for hook in cluster.once(read_hooks) if hook.is_ours(cluster.namespace)]


def check_webhooks(cluster: Cluster) -> Iterator[Line]:
    """Is the webhook called for all reviews?"""
    ours = our_hooks(cluster)
    for review in REVIEWS:
        labels = [hook.label for hook in ours if hook.asks_for(review)]
        text = f"no {review.kind} webhook of accelbind covers {review.resource}: {review.loss}"
        if labels:
            yield ok(f"{review.resource}: {', '.join(labels)}")
        else:
            yield (failed if review.resource == _PODS else warning)(text, APPLY)


def check_rules(cluster: Cluster) -> Iterator[Line]:
    """Are the webhook configurations right?"""
    for hook in our_hooks(cluster):
        lines = [*hook_lines(hook, cluster.prefixes)]
        yield from lines or [ok(hook.label)]


def check_other_webhooks(cluster: Cluster) -> Iterator[Line]:
    """Does no other suite change FPGA pods?"""
    for hook in cluster.once(read_hooks):
        name = str(hook.entry.get("name", ""))
        if not hook.is_ours(cluster.namespace) and name.endswith(_OTHER_SUITES):
            yield failed(
                f"{hook.label} changes FPGA pods too",
                "remove it (docs/migration.md): only one webhook can replace names",
            )


def hook_lines(hook: Hook, prefixes: tuple[str, ...]) -> Iterator[Line]:
    """Yield what is wrong with one of our entries."""
    entry, label = hook.entry, hook.label
    if "v1" not in (entry.get("admissionReviewVersions") or ()):
        yield failed(f"{label} does not accept admission.k8s.io/v1", APPLY)
    if not hook.bundle:
        text = f"{label} has no caBundle: the API server does not trust the webhook"
        yield failed(text, "accelbind certs run sets it: see its log")
    timeout = entry.get("timeoutSeconds", 10)
    if timeout > _SLOWEST:
        yield warning(f"{label}: timeoutSeconds is {timeout}: pods wait that long", APPLY)
    if entry.get("matchPolicy", "Equivalent") != "Equivalent":
        yield warning(f"{label}: matchPolicy is {entry['matchPolicy']}", APPLY)
    yield from _selector_lines(hook)
    yield from _path_lines(hook)
    if hook.covers(_PODS):
        for text in _pod_faults(entry, prefixes):
            yield failed(f"{label} {text}", APPLY)
        if hook.kind == MUTATING and entry.get("reinvocationPolicy", "Never") != "IfNeeded":
            text = "names that a later webhook adds are refused instead of replaced"
            yield warning(f"{label}: reinvocationPolicy is not IfNeeded: {text}", APPLY)


def _pod_faults(entry: Json, prefixes: tuple[str, ...]) -> Iterator[str]:
    conditions = entry.get("matchConditions") or ()
    expressions = " ".join(str(one.get("expression")) for one in conditions)
    policy = entry.get("failurePolicy", "Fail")
    if policy != "Fail":
        yield f"has failurePolicy {policy}: while the webhook is down, FPGA pods are not checked"
    elif not conditions:
        yield "has no matchConditions: while the webhook is down, no pod can be created"
    missing = [prefix for prefix in prefixes if conditions and prefix not in expressions]
    if missing:
        yield f"does not name {', '.join(missing)} in matchConditions: it never sees such pods"
    if conditions and "initContainers" not in expressions:
        yield "leaves out init containers in matchConditions"
    operations = {each for rule in entry.get("rules") or () for each in rule.get("operations", ())}
    if not operations & {"CREATE", "*"}:
        yield "is not called when pods are created"


def _path_lines(hook: Hook) -> Iterator[Line]:
    path = part(hook.client, "service").get("path")
    path = str(path or urlsplit(str(hook.client.get("url") or "")).path)
    for review in REVIEWS:
        # endswith: a proxy in front of the webhook may add to the path
        if hook.asks_for(review) and not path.endswith(review.paths):
            calls = f"{hook.label} calls {plain(path) or '/'} for {review.resource}"
            yield failed(f"{calls}, not {' or '.join(review.paths)}", APPLY)


def _selector_lines(hook: Hook) -> Iterator[Line]:
    """Selectors by which objects without a label are not reviewed."""
    for name in ("namespaceSelector", "objectSelector"):
        selector = part(hook.entry, name)
        labels = [
            *part(selector, "matchLabels"),
            *(
                str(one.get("key"))
                for one in selector.get("matchExpressions") or ()
                if one.get("operator") in {"In", "Exists"}
            ),
        ]
        if labels:
            shown = ", ".join(map(plain, labels))
            yield warning(f"{hook.label}: {name} leaves out what has no label {shown}", APPLY)
