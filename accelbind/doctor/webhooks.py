"""What `accelbind doctor` checks about webhook configurations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from accelbind.doctor.cluster import APPLY, Cluster, Json, name_of
from accelbind.doctor.model import Line, failed, ok, warning
from services.kube.objects import GROUP, PLURALS
from services.process.text import plain

NAME: Final = "accelbind"
_SUFFIX: Final = ".accelbind.dev"
_OTHER_SUITES: Final = ("fpga.mutator.webhooks.intel.com", "fpga.intel.com")
_SLOWEST: Final = 10

_WANTED: Final = (
    (True, "pods", "logical names are not replaced, and such pods never start"),
    (False, "pods", "changes by other webhooks are not checked"),
    (False, "acceleratorfunctions", "mappings that clash are accepted"),
    (True, "acceleratorfunctions", "kubectl get af does not show what a name stands for"),
)
"""Reviews that a configuration has to ask for (mutating or not), and what is lost without."""

PATHS: Final = (
    ("pods", True, ("/mutate", "/pods")),
    ("pods", False, ("/validate",)),
    ("acceleratorfunctions", True, ("/mutate-mapping",)),
    ("acceleratorfunctions", False, ("/validate-mapping",)),
)
"""Where the webhook answers for what, mutating or not; a test compares it with the webhook."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One entry of a webhook configuration."""

    configuration: str
    """`mutating` or `validating`, and the configuration's name."""
    entry: Json
    mutating: bool

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.configuration}: {plain(str(self.entry.get('name')))}"

    @property
    def client(self) -> Json:
        """Its `clientConfig`."""
        found = self.entry.get("clientConfig")
        return found if isinstance(found, dict) else {}

    def covers(self, resource: str) -> bool:
        """Whether one of its rules covers a resource."""
        rules = self.entry.get("rules") or ()
        return any({resource, "*", "*/*"} & {*(rule.get("resources") or ())} for rule in rules)

    def is_ours(self, namespace: str) -> bool:
        """Whether it calls our webhook, which runs in this namespace."""
        service = self.client.get("service") or {}
        if service:
            return bool(service.get("namespace") == namespace)
        name = str(self.entry.get("name", ""))
        return name.endswith(_SUFFIX) or self.configuration.endswith(f" {NAME}")


def read_hooks(cluster: Cluster) -> list[Hook]:
    """The entries of all webhook configurations. Raises as `Cluster.get`."""
    return [
        Hook(f"{kind} {name_of(item)}", entry, kind == "mutating")
        for plural, kind in zip(PLURALS, ("mutating", "validating"), strict=True)
        for item in cluster.items(f"{GROUP}/{plural}")
        for entry in item.get("webhooks") or ()
        if isinstance(entry, dict)
    ]


def our_hooks(cluster: Cluster) -> list[Hook]:
    """The entries that call our webhook. Raises as `Cluster.get`."""
    return [hook for hook in cluster.once(read_hooks) if hook.is_ours(cluster.namespace)]


def check_webhooks(cluster: Cluster) -> Iterator[Line]:
    """Whether the webhook is called for all reviews."""
    ours = our_hooks(cluster)
    for mutating, resource, loss in _WANTED:
        hooks = [hook for hook in ours if hook.mutating is mutating and hook.covers(resource)]
        if hooks:
            yield ok(f"{resource}: {', '.join(hook.label for hook in hooks)}")
            continue
        kind = "mutating" if mutating else "validating"
        text = f"no {kind} webhook of accelbind covers {resource}: {loss}"
        yield (failed if resource == "pods" else warning)(text, APPLY)


def check_rules(cluster: Cluster) -> Iterator[Line]:
    """What is wrong with our entries."""
    for hook in our_hooks(cluster):
        lines = [*hook_lines(hook, cluster.prefixes)]
        yield from lines or [ok(hook.label)]


def check_other_webhooks(cluster: Cluster) -> Iterator[Line]:
    """Webhooks of the suites that accelbind replaces."""
    for hook in cluster.once(read_hooks):
        name = str(hook.entry.get("name", ""))
        if not hook.is_ours(cluster.namespace) and name.endswith(_OTHER_SUITES):
            yield failed(
                f"{hook.label} changes FPGA pods too",
                "remove it from its configuration (docs/migration.md): only one webhook can"
                " replace names",
            )


def hook_lines(hook: Hook, prefixes: tuple[str, ...]) -> Iterator[Line]:
    """Yield what is wrong with one of our entries."""
    entry, label = hook.entry, hook.label
    if "v1" not in (entry.get("admissionReviewVersions") or ()):
        yield failed(f"{label} does not accept admission.k8s.io/v1", APPLY)
    if not hook.client.get("caBundle"):
        yield failed(
            f"{label} has no caBundle: the API server does not trust the webhook",
            "accelbind certs run sets it: see its log",
        )
    timeout = entry.get("timeoutSeconds", 10)
    if timeout > _SLOWEST:
        yield warning(f"{label}: timeoutSeconds is {timeout}: pods wait that long", APPLY)
    if entry.get("matchPolicy", "Equivalent") != "Equivalent":
        yield warning(f"{label}: matchPolicy is {entry['matchPolicy']}", APPLY)
    yield from _selector_lines(hook)
    yield from _path_lines(hook)
    if hook.covers("pods"):
        yield from _pod_hook_lines(hook, prefixes)


def _pod_hook_lines(hook: Hook, prefixes: tuple[str, ...]) -> Iterator[Line]:
    entry, label = hook.entry, hook.label
    conditions = entry.get("matchConditions") or ()
    expressions = " ".join(str(one.get("expression")) for one in conditions)
    if entry.get("failurePolicy", "Fail") != "Fail":
        yield failed(
            f"{label}: failurePolicy is {entry['failurePolicy']}: while the webhook is down, FPGA"
            " pods are not checked",
            APPLY,
        )
    elif not conditions:
        yield failed(
            f"{label} has no matchConditions: while the webhook is down, no pod can be created",
            APPLY,
        )
    missing = [prefix for prefix in prefixes if conditions and prefix not in expressions]
    if missing:
        yield failed(
            f"{label}: its matchConditions do not name {', '.join(missing)}: the webhook never"
            " sees such pods",
            "add the domain to the condition",
        )
    if conditions and "initContainers" not in expressions:
        yield failed(f"{label}: its matchConditions leave out init containers", APPLY)
    operations = {each for rule in entry.get("rules") or () for each in rule.get("operations", ())}
    if not operations & {"CREATE", "*"}:
        yield failed(f"{label} is not called when pods are created", APPLY)
    if hook.mutating and entry.get("reinvocationPolicy", "Never") != "IfNeeded":
        yield warning(
            f"{label}: reinvocationPolicy is not IfNeeded: names that a later webhook adds are"
            " refused instead of replaced",
            APPLY,
        )


def _path_lines(hook: Hook) -> Iterator[Line]:
    path = (hook.client.get("service") or {}).get("path")
    path = str(path or urlsplit(str(hook.client.get("url") or "")).path)
    for resource, mutating, known in PATHS:
        # endswith: a proxy in front of the webhook may add to the path
        if hook.covers(resource) and hook.mutating is mutating and not path.endswith(known):
            yield failed(
                f"{hook.label} calls {plain(path) or '/'} for {resource}, not {' or '.join(known)}",
                APPLY,
            )


def _selector_lines(hook: Hook) -> Iterator[Line]:
    """Selectors by which objects without a label are not reviewed."""
    for name in ("namespaceSelector", "objectSelector"):
        selector = hook.entry.get(name) or {}
        labels = [*(selector.get("matchLabels") or {})]
        labels += [
            str(one.get("key"))
            for one in selector.get("matchExpressions") or ()
            if one.get("operator") in {"In", "Exists"}
        ]
        if labels:
            yield warning(
                f"{hook.label}: {name} leaves out what has no label"
                f" {', '.join(map(plain, labels))}",
                f"{APPLY}; or label everything that asks for FPGAs",
            )
