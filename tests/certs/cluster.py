"""Two Secrets and two webhook configurations in an API server stand-in, as in the manifests."""

import base64
from typing import Any

import yaml

from certs.certificates import Certificate, read_certificates
from certs.keeper import CertificateReconciler, RoundReport
from services.kube.client import ClusterClient
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.memory import CA, NAMESPACE, SETTINGS, TLS
from tests.support import REPOSITORY

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"


def configuration(kind: str) -> dict[str, Any]:
    """That of the manifests, without a bundle."""
    name = kind.removesuffix("WebhookConfiguration").lower()
    text = (REPOSITORY / f"manifests/base/webhook-{name}.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def empty_secret(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": "accelbind"}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}


def apply_manifests(api: ApiServerStandIn) -> None:
    """What `kubectl apply` leaves: empty Secrets, configurations without bundles."""
    api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for name in (CA, TLS):
        api.put(empty_secret(name))
    for kind in (MUTATING, VALIDATING):
        api.put(configuration(kind))


def secret(api: ApiServerStandIn, name: str) -> dict[str, bytes]:
    item = api.get("Secret", name, NAMESPACE)
    assert item is not None
    return {key: base64.b64decode(text) for key, text in (item.get("data") or {}).items()}


def bundles(api: ApiServerStandIn) -> list[bytes]:
    """The bundles in all entries of the configurations."""
    entries: list[dict[str, Any]] = []
    for kind in (MUTATING, VALIDATING):
        item = api.get(kind, "accelbind")
        entries += (item or {}).get("webhooks", [])
    return [base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in entries]


def the_bundle(api: ApiServerStandIn) -> tuple[Certificate, ...]:
    """The CAs that all configurations agree on."""
    held = set(bundles(api))
    assert len(held) == 1, "the configurations trust different CAs"
    return read_certificates(held.pop())


def serving(api: ApiServerStandIn) -> Certificate:
    [certificate] = read_certificates(secret(api, TLS)["tls.crt"])
    return certificate


async def reconcile(api: ApiServerStandIn) -> RoundReport:
    """One round of a replica."""
    reconciler = CertificateReconciler(SETTINGS)
    async with ClusterClient(api.access) as client:
        return await reconciler.run_once(client)
