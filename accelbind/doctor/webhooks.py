"""Checks of `accelbind doctor`: webhook configurations, their trust, and who may write them."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from accelbind.cluster import DEFAULT_NAMESPACE, Json, part
from accelbind.doctor.cluster import APPLY, Cluster, name_of
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, unseen, warning
from accelbind.explain.dry_run import Denied, NotAsked, dry_run
from certs.store import SUFFIX
from services.kube.objects import GROUP, PLURALS
from services.pods.manifests import find_pods
from services.process.text import plain

NAME: Final = "accelbind"
_OTHER_SUITES: Final = ("fpga.mutator.webhooks.intel.com", "fpga.intel.com")
_PODS: Final = "pods"
_KINDS: Final = {
    "mutating": "logical names are not replaced",
    "validating": "changes by other webhooks are not checked",
}
"""Kinds of configurations, and what is lost if none of ours covers pods."""

_NOBODY: Final = "accelbind-doctor"
"""A name that no mapping has, and that of the pod."""
_RENEW: Final = "see accelbind certs show, and the log of accelbind certs run"

CERTS: Final = "accelbind-certs"
_POLICY: Final = "ValidatingAdmissionPolicy"

# RBAC lets the account update our webhook configurations completely, and create Secrets of any
# type. Policies limit that, and nothing else notices that they or their bindings are missing.
POLICIES: Final = {
    "accelbind-certs": "could change more of our webhook configurations than caBundle",
    "accelbind-certs-secrets": "could create a Secret that the cluster fills with another token",
}
"""What the account could do without each of its policies."""


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


def check_served(cluster: Cluster) -> Iterator[Line]:
    """Does the API server reach the webhook and trust its certificate?"""
    hooks = our_hooks(cluster)
    if not hooks:
        yield skipped("there is no webhook configuration of accelbind")
        return
    if len({str(hook.client.get("caBundle")) for hook in hooks}) > 1:
        yield warning("the entries of the webhook configurations trust different CAs", _RENEW)
    limits = {cluster.prefixes[0] + _NOBODY: "1"}
    container = {"name": "work", "image": "none", "resources": {"limits": limits}}
    pod = {"kind": "Pod", "metadata": {"name": _NOBODY}, "spec": {"containers": [container]}}
    (found,) = find_pods({"apiVersion": "v1", **pod})
    # Webhooks leave out kube-system.
    tried = f"a pod that the webhook refuses was tried in the namespace {DEFAULT_NAMESPACE}"
    match cluster.query(lambda client: dry_run(client, found, DEFAULT_NAMESPACE)):
        case Denied("webhook", author) if any(hook.name in author for hook in hooks):
            yield ok(f"the API server calls {author} and trusts its certificate")
        case Denied("webhook-failed", author, text) if any(hook.name in author for hook in hooks):
            yield failed(text, f"certificates: {_RENEW}; else see cluster.workloads")
        case Denied(message=text) | NotAsked(text):
            yield unseen(f"{tried}: {text}")
        case _:
            yield unseen(f"{tried}: it was not sent to the webhook")


def check_policy(cluster: Cluster) -> Iterator[Line]:
    """Can the account accelbind-certs change only caBundle?"""
    account = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/{CERTS}"
    with contextlib.suppress(Unseen):  # it may exist
        if cluster.get(account) is None:
            yield skipped(f"there is no account {CERTS} in namespace {cluster.namespace}")
            return
    specs = [
        part(each, "spec") for each in cluster.items(f"{GROUP}/validatingadmissionpolicybindings")
    ]
    for name, risk in POLICIES.items():
        denies = any(
            spec.get("policyName") == name and "Deny" in (spec.get("validationActions") or ())
            for spec in specs
        )
        if cluster.get(f"{GROUP}/validatingadmissionpolicies/{name}") is None:
            text = f"there is no {_POLICY} {name}: {CERTS} {risk}"
            yield warning(text, f"{APPLY}; before Kubernetes 1.30 use cert-manager")
        elif not denies:
            yield failed(f"no {_POLICY}Binding of {name} denies anything: {CERTS} {risk}", APPLY)
        else:
            yield ok(f"{_POLICY} {name} is there and bound")
