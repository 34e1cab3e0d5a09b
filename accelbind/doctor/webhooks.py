"""Checks of `accelbind doctor`: webhook configurations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from accelbind.cluster import Json, part
from accelbind.doctor.cluster import APPLY, Cluster, name_of
from accelbind.doctor.model import Line, failed, ok
from certs.store import SUFFIX
from services.kube.objects import GROUP, PLURALS
from services.process.text import plain

NAME: Final = "accelbind"
_OTHER_SUITES: Final = ("fpga.mutator.webhooks.intel.com", "fpga.intel.com")
_PODS: Final = "pods"
_KINDS: Final = {
    "mutating": "logical names are not replaced",
    "validating": "changes by other webhooks are not checked",
}
"""Kinds of configurations, and what is lost if none of ours covers pods."""


@dataclass(frozen=True, slots=True)
class WebhookEntry:
    """One entry of a webhook configuration."""

    kind: str
    """Of `_KINDS`."""
    configuration: str
    entry: Json

    @property
    def name(self) -> str:
        """Its name, which errors of the API server have."""
        return plain(str(self.entry.get("name")))

    @property
    def label(self) -> str:
        """Its name with that of its configuration."""
        return f"{self.kind} {self.configuration}: {self.name}"

    @property
    def client(self) -> Json:
        """Its `clientConfig`."""
        return part(self.entry, "clientConfig")

    @property
    def is_guard(self) -> bool:
        """Whether it is the guard, which reviews pods with resources of others."""
        # Its namespaces and resources are the administrator's, so it stands for none of `_KINDS`.
        path = part(self.client, "service").get("path") or self.client.get("url")
        return str(path).endswith("/guard")

    @property
    def covers_pods(self) -> bool:
        """Whether one of its rules covers pods."""
        rules = self.entry.get("rules") or ()
        return any({_PODS, "*", "*/*"} & {*(rule.get("resources") or ())} for rule in rules)

    def is_ours(self, namespace: str) -> bool:
        """Whether it calls our webhook, which runs in this namespace."""
        if service := part(self.client, "service"):
            return bool(service.get("namespace") == namespace)
        return self.name.endswith(SUFFIX) or self.configuration == NAME


def read_hooks(cluster: Cluster) -> list[WebhookEntry]:
    """The entries of all webhook configurations. Raises as `Cluster.get`."""
    return [
        WebhookEntry(kind, name_of(item), entry)
        for plural, kind in zip(PLURALS, _KINDS, strict=True)
        for item in cluster.items(f"{GROUP}/{plural}")
        for entry in item.get("webhooks") or ()
        if isinstance(entry, dict)
    ]


def our_hooks(cluster: Cluster) -> list[WebhookEntry]:
    """The entries that call our webhook. Raises as `Cluster.get`."""
    return [hook for hook in read_hooks(cluster) if hook.is_ours(cluster.namespace)]


def check_webhooks(cluster: Cluster) -> Iterator[Line]:
    """Is the webhook called for all reviews, and for no other pods?"""
    ours = [hook for hook in our_hooks(cluster) if hook.covers_pods]
    for kind, loss in _KINDS.items():
        labels = [hook.label for hook in ours if hook.kind == kind and not hook.is_guard]
        if labels:
            yield ok(f"{_PODS}: {', '.join(labels)}")
        else:
            yield failed(f"no {kind} webhook of accelbind covers {_PODS}: {loss}", APPLY)
    for hook in ours:
        for text in _faults(hook.entry, () if hook.is_guard else cluster.prefixes):
            yield failed(f"{hook.label} {text}", APPLY)


def other_hooks(cluster: Cluster) -> Iterator[str]:
    """Yield the webhooks of other suites. Raises as `Cluster.get`."""
    for hook in read_hooks(cluster):
        if not hook.is_ours(cluster.namespace) and hook.name.endswith(_OTHER_SUITES):
            yield hook.label


def _faults(entry: Json, prefixes: tuple[str, ...]) -> Iterator[str]:
    conditions = entry.get("matchConditions") or ()
    expressions = " ".join(str(one.get("expression")) for one in conditions)
    policy = entry.get("failurePolicy", "Fail")
    if policy != "Fail":
        yield f"has failurePolicy {policy}: while the webhook is down, pods are not checked"
    elif not conditions:
        yield "has no matchConditions: while the webhook is down, no pod can be created"
    missing = [prefix for prefix in prefixes if conditions and prefix not in expressions]
    if missing:
        yield f"does not name {', '.join(missing)} in matchConditions: it never sees such pods"
