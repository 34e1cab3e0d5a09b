"""Checks of `accelbind doctor`: webhook configurations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from accelbind.doctor.cluster import APPLY, Cluster, Json, name_of, part
from accelbind.doctor.model import Line, failed, ok
from certs.store import SUFFIX
from services.kube.objects import GROUP, PLURALS, decode_base64
from services.process.text import plain

NAME: Final = "accelbind"
_OTHER_SUITES: Final = ("fpga.mutator.webhooks.intel.com", "fpga.intel.com")


MUTATING, VALIDATING = KINDS = ("mutating", "validating")
_PODS: Final = "pods"

REVIEWS: Final = (
    (MUTATING, "logical names are not replaced"),
    (VALIDATING, "changes by other webhooks are not checked"),
)
"""Kinds of reviews of pods that configurations have to ask for, and what is lost without."""


@dataclass(frozen=True, slots=True)
class WebhookEntry:
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

    @property
    def is_guard(self) -> bool:
        """Whether it is the guard, which reviews pods with resources of others."""
        # Its namespaces and resources are the administrator's, so it stands for none of `REVIEWS`.
        path = part(self.client, "service").get("path") or self.client.get("url")
        return str(path).endswith("/guard")

    def covers(self, resource: str) -> bool:
        """Whether one of its rules covers a resource."""
        rules = self.entry.get("rules") or ()
        return any({resource, "*", "*/*"} & {*(rule.get("resources") or ())} for rule in rules)

    def is_ours(self, namespace: str) -> bool:
        """Whether it calls our webhook, which runs in this namespace."""
        if service := part(self.client, "service"):
            return bool(service.get("namespace") == namespace)
        name = str(self.entry.get("name", ""))
        return name.endswith(SUFFIX) or self.configuration == NAME


def read_hooks(cluster: Cluster) -> list[WebhookEntry]:
    """The entries of all webhook configurations. Raises as `Cluster.get`."""
    return [
        WebhookEntry(kind, name_of(item), entry)
        for plural, kind in zip(PLURALS, KINDS, strict=True)
        for item in cluster.items(f"{GROUP}/{plural}")
        for entry in item.get("webhooks") or ()
        if isinstance(entry, dict)
    ]


def our_hooks(cluster: Cluster) -> list[WebhookEntry]:
    """The entries that call our webhook. Raises as `Cluster.get`."""
    return [hook for hook in cluster.once(read_hooks) if hook.is_ours(cluster.namespace)]


def check_webhooks(cluster: Cluster) -> Iterator[Line]:
    """Is the webhook called for all reviews, and for no other pods?"""
    ours = our_hooks(cluster)
    for kind, loss in REVIEWS:
        of_kind = [hook for hook in ours if hook.kind == kind and not hook.is_guard]
        labels = [hook.label for hook in of_kind if hook.covers(_PODS)]
        if labels:
            yield ok(f"{_PODS}: {', '.join(labels)}")
        else:
            yield failed(f"no {kind} webhook of accelbind covers {_PODS}: {loss}", APPLY)
    for hook in ours:
        prefixes = () if hook.is_guard else cluster.prefixes
        for text in pod_faults(hook.entry, prefixes) if hook.covers(_PODS) else ():
            yield failed(f"{hook.label} {text}", APPLY)


def other_hooks(cluster: Cluster) -> Iterator[str]:
    """Yield the webhooks of other suites. Raises as `Cluster.get`."""
    for hook in cluster.once(read_hooks):
        name = str(hook.entry.get("name", ""))
        if not hook.is_ours(cluster.namespace) and name.endswith(_OTHER_SUITES):
            yield hook.label


def pod_faults(entry: Json, prefixes: tuple[str, ...]) -> Iterator[str]:
    """Yield what is wrong with one of our entries about pods."""
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
