"""What `accelbind doctor` finds in webhook configurations: are they there, ours, and right?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from accelbind.doctor.cluster import Cluster
from accelbind.doctor.model import Check, Line, Once, failed, ok, warning
from services.kube.objects import GROUP, PLURALS
from services.process.text import plain

Json: TypeAlias = dict[str, Any]

NAME: Final = "accelbind"
_SUFFIX: Final = ".accelbind.dev"
_PUBLIC: Final = ("fpga.mutator.webhooks.intel.com", "fpga.intel.com")
_APPLY: Final = "kubectl apply --server-side -k OVERLAY puts it right"
_SLOWEST: Final = 10
_MAPPINGS: Final = frozenset({"acceleratorfunctions", "fpgaregions"})


@dataclass(frozen=True, slots=True)
class Hook:
    """An entry of a configuration of ours.

    Args:
        configuration: `mutating` or `validating`, and the configuration's name.
        entry: All of it.
        mutating: Whether it may change objects.
    """

    configuration: str
    entry: Json
    mutating: bool

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.configuration}: {plain(str(self.entry.get('name')))}"

    @property
    def client(self) -> Json:
        """Whom the API server calls."""
        found = self.entry.get("clientConfig")
        return found if isinstance(found, dict) else {}

    def about(self, resource: str) -> bool:
        """Whether one of its rules is about a resource."""
        rules = self.entry.get("rules") or ()
        return any({resource, "*", "*/*"} & {*(rule.get("resources") or ())} for rule in rules)


@dataclass(slots=True)
class Webhooks:
    """The webhook configurations of a cluster.

    Args:
        cluster: The cluster.
    """

    cluster: Cluster
    all_hooks: Once[list[Hook]]

    @classmethod
    def of(cls, cluster: Cluster) -> "Webhooks":
        """Those of a cluster."""
        return cls(cluster, Once(lambda: [*_hooks(cluster)]))

    def ours(self) -> list[Hook]:
        """The entries that call our webhook."""
        return [hook for hook in self.all_hooks() if self._is_ours(hook)]

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        return [
            Check("cluster.webhooks", "Are pods and mappings brought to the webhook?", self.there),
            Check("cluster.webhook-rules", "Are the configurations right?", self.right),
            Check("cluster.other-webhooks", "Does no other suite change FPGA pods?", self.others),
        ]

    def there(self) -> Iterator[Line]:
        """Whether each kind of review is asked for."""
        ours = self.ours()
        for mutating, resource, without in _WANTED:
            kind = "mutating" if mutating else "validating"
            hooks = [hook for hook in ours if hook.mutating is mutating and hook.about(resource)]
            if hooks:
                yield ok(f"{resource}: {', '.join(hook.label for hook in hooks)}")
                continue
            told = f"no {kind} webhook of ours is asked about {resource}: {without}"
            yield (failed if resource == "pods" else warning)(told, _APPLY)

    def right(self) -> Iterator[Line]:
        """What is wrong with each entry of ours."""
        for hook in self.ours():
            lines = [*_judged(hook, self.cluster.prefixes)]
            yield from lines or [ok(hook.label)]

    def others(self) -> Iterator[Line]:
        """Webhooks of the suites that accelbind takes over from."""
        for hook in self.all_hooks():
            if not self._is_ours(hook) and str(hook.entry.get("name", "")).endswith(_PUBLIC):
                yield failed(
                    f"{hook.label} changes FPGA pods too",
                    "take it out of its configuration (docs/migration.md): two webhooks that"
                    " replace the same names refuse or lose them",
                )

    def _is_ours(self, hook: Hook) -> bool:
        service = hook.client.get("service") or {}
        if service:
            return bool(service.get("namespace") == self.cluster.namespace)
        name = str(hook.entry.get("name", ""))
        return name.endswith(_SUFFIX) or hook.configuration.endswith(f" {NAME}")


_WANTED: Final = (
    (True, "pods", "logical names stay as they are, and such pods never start"),
    (False, "pods", "what other webhooks make of a pod isn't looked at again"),
    (False, "acceleratorfunctions", "mappings that clash are taken"),
    (True, "acceleratorfunctions", "kubectl get af doesn't show what a name stands for"),
)


_PATHS: Final = (
    ("pods", True, ("/mutate", "/pods")),
    ("pods", False, ("/validate",)),
    ("acceleratorfunctions", True, ("/mutate-mapping",)),
    ("acceleratorfunctions", False, ("/validate-mapping",)),
)
"""Where the webhook answers for what, mutating or not; a test holds it against the webhook."""


def _hooks(cluster: Cluster) -> Iterator[Hook]:
    for plural, kind in zip(PLURALS, ("mutating", "validating"), strict=True):
        for item in cluster.items(f"{GROUP}/{plural}"):
            name = plain(str((item.get("metadata") or {}).get("name")))
            for entry in item.get("webhooks") or ():
                if isinstance(entry, dict):
                    yield Hook(f"{kind} {name}", entry, kind == "mutating")


def _judged(hook: Hook, prefixes: tuple[str, ...]) -> Iterator[Line]:
    entry, label = hook.entry, hook.label
    if "v1" not in (entry.get("admissionReviewVersions") or ()):
        yield failed(f"{label} doesn't speak admission.k8s.io/v1", _APPLY)
    if not hook.client.get("caBundle"):
        yield failed(
            f"{label} has no caBundle: the API server can't trust the webhook",
            "accelbind certs run sets it: does it run, and what does its log say?",
        )
    timeout = entry.get("timeoutSeconds", 10)
    if timeout > _SLOWEST:
        yield warning(f"{label}: timeoutSeconds is {timeout}: pods wait as long", _APPLY)
    if entry.get("matchPolicy", "Equivalent") != "Equivalent":
        yield warning(f"{label}: matchPolicy is {entry['matchPolicy']}", _APPLY)
    yield from _selectors(hook)
    yield from _paths(hook)
    if hook.about("pods"):
        yield from _judged_of_pods(hook, prefixes)


def _judged_of_pods(hook: Hook, prefixes: tuple[str, ...]) -> Iterator[Line]:
    entry, label = hook.entry, hook.label
    conditions = entry.get("matchConditions") or ()
    expressions = " ".join(str(one.get("expression")) for one in conditions)
    strict = entry.get("failurePolicy", "Fail") == "Fail"
    if not strict:
        yield failed(
            f"{label}: failurePolicy is {entry['failurePolicy']}: while the webhook is away, FPGA"
            " pods pass unseen and stay Pending, or get what isn't mapped",
            _APPLY,
        )
    elif not conditions:
        yield failed(
            f"{label} has no matchConditions: while the webhook is away, no pod at all can be made",
            _APPLY,
        )
    missing = [prefix for prefix in prefixes if conditions and prefix not in expressions]
    if missing:
        yield failed(
            f"{label}: its matchConditions don't name {', '.join(missing)}: pods that ask for it"
            " never get to the webhook",
            "write the domain into the condition, beside the others",
        )
    if conditions and "initContainers" not in expressions:
        yield failed(f"{label}: its matchConditions leave out init containers", _APPLY)
    operations = {each for rule in entry.get("rules") or () for each in rule.get("operations", ())}
    if not operations & {"CREATE", "*"}:
        yield failed(f"{label} isn't asked when pods are created", _APPLY)
    if hook.mutating and entry.get("reinvocationPolicy", "Never") != "IfNeeded":
        yield warning(
            f"{label}: reinvocationPolicy isn't IfNeeded: what a later webhook adds to a pod is"
            " refused instead of resolved",
            _APPLY,
        )


def _paths(hook: Hook) -> Iterator[Line]:
    """Paths that lead to another kind of review, or to none."""
    path = (hook.client.get("service") or {}).get("path")
    path = str(path or urlsplit(str(hook.client.get("url") or "")).path)
    for resource, mutating, known in _PATHS:
        # A way that leads through somebody's proxy may have more in front of it.
        if hook.about(resource) and hook.mutating is mutating and not path.endswith(known):
            yield failed(
                f"{hook.label} calls the path {plain(path) or '/'}, which doesn't answer for"
                f" {resource}: {' or '.join(known)} does",
                _APPLY,
            )


def _selectors(hook: Hook) -> Iterator[Line]:
    """Selectors that let objects pass unseen unless they have a label."""
    for name in ("namespaceSelector", "objectSelector"):
        selector = hook.entry.get(name) or {}
        demands = [*(selector.get("matchLabels") or {})]
        demands += [
            str(one.get("key"))
            for one in selector.get("matchExpressions") or ()
            if one.get("operator") in {"In", "Exists"}
        ]
        if demands:
            yield warning(
                f"{hook.label}: only what has the label {', '.join(map(plain, demands))}"
                f" ({name}) gets to the webhook",
                f"{_APPLY}; or see that all who ask for FPGAs have it",
            )
