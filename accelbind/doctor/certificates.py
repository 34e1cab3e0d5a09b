"""Checks of `accelbind doctor`: whether the API server trusts the webhook's certificate."""

from collections.abc import Iterator
from typing import Final

from accelbind.doctor.cluster import Cluster
from accelbind.doctor.model import Line, failed, ok, skipped, unseen, warning
from accelbind.doctor.webhooks import our_hooks
from accelbind.explain.dry_run import Denied, NotAsked, dry_run
from services.pods.manifests import find_pods

NAMESPACE: Final = "default"
"""Where a pod is tried: webhooks leave out kube-system."""

_NOBODY: Final = "accelbind-doctor"
"""A name that no mapping has, and that of the pod."""
_RENEW: Final = "see accelbind certs show, and the log of accelbind certs run"


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
    tried = f"a pod that the webhook refuses was tried in the namespace {NAMESPACE}"
    match cluster.query(lambda client: dry_run(client, found, NAMESPACE)):
        case Denied("webhook", author) if any(hook.name in author for hook in hooks):
            yield ok(f"the API server calls {author} and trusts its certificate")
        case Denied("webhook-failed", author, text) if any(hook.name in author for hook in hooks):
            yield failed(text, f"certificates: {_RENEW}; else see cluster.workloads")
        case Denied(message=text) | NotAsked(text):
            yield unseen(f"{tried}: {text}")
        case _:
            yield unseen(f"{tried}: it was not sent to the webhook")
