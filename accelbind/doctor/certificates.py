"""Checks of `accelbind doctor`: whether the API server trusts the webhook's certificate."""

from collections.abc import Iterator
from typing import Final

from accelbind.doctor.cluster import Cluster, Json
from accelbind.doctor.model import Line, failed, ok, skipped, unseen, warning
from accelbind.doctor.webhooks import our_hooks
from services.kube.client import BadStatus, ClusterClient
from services.kube.objects import try_create

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
    for hook in hooks:
        if not hook.bundle:
            text = f"{hook.label} has no caBundle: the API server does not trust the webhook"
            yield failed(text, "accelbind certs run sets it: see its log")
    if len({hook.bundle for hook in hooks}) > 1:
        yield warning("the entries of the webhook configurations trust different CAs", _RENEW)
    refusal = cluster.query(lambda client: _try_pod(client, cluster.prefixes[0] + _NOBODY))
    for name in dict.fromkeys(str(hook.entry.get("name")) for hook in hooks):
        if f'webhook "{name}" denied' in refusal:
            yield ok(f"the API server calls {name} and trusts its certificate")
            return
        if f'failed calling webhook "{name}"' in refusal:
            yield failed(refusal, f"certificates: {_RENEW}; else see cluster.workloads")
            return
    text = f"a pod that the webhook refuses was tried in the namespace {NAMESPACE}"
    yield unseen(f"{text}: {refusal or 'it was not sent to the webhook'}")


async def _try_pod(client: ClusterClient, resource: str) -> str:
    """Create a pod that requests an unknown name, as a dry run; returns why it is refused."""
    container: Json = {"name": "work", "image": "none", "resources": {"limits": {resource: "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NOBODY},
        "spec": {"containers": [container]},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    try:
        await try_create(client, path, pod, manager=_NOBODY)
    except BadStatus as error:
        return str(error)
    return ""
