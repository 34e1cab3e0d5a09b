"""Two Secrets and two webhook configurations in an API server stand-in, as the manifests have them,
and keepers that look after them by a clock that a test sets."""

import base64
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from certs.authority import parse_names
from certs.keeper import Keeper, Orders, Places
from certs.reading import certificates_in
from certs.trust import Rules
from services.kube.client import ClusterClient
from services.kube.connection import connector
from simulator.apiserver.standin import ApiServerStandIn

NAMESPACE = "accelbind-system"
CA, TLS = "accelbind-ca", "accelbind-webhook-tls"
SERVICE = "accelbind-webhook"
HOST = f"{SERVICE}.{NAMESPACE}.svc"
PLACES = Places(NAMESPACE, CA, TLS, SERVICE, ("accelbind",), frozenset({HOST}))
RULES = Rules(
    parse_names([HOST]),
    lifetime=timedelta(days=90),
    authority_lifetime=timedelta(days=3650),
    overlap=timedelta(hours=1),
    settle=timedelta(minutes=1),
)
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"


class Hands:
    """A clock that stands still, and is put forward by hand."""

    def __init__(self) -> None:
        self._now = datetime.fromtimestamp(int(time.time()), UTC)

    def now(self) -> datetime:
        return self._now

    def hear(self, date: str) -> None:
        """What the API server says is of no interest: it isn't put forward."""

    def pass_(self, **much: float) -> None:
        self._now += timedelta(**much)


def entry(name: str, **config: Any) -> dict[str, Any]:
    service = {"name": SERVICE, "namespace": NAMESPACE, "path": "/mutate"}
    return {
        "name": name,
        "clientConfig": config or {"service": service},
        "rules": [
            {
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["configmaps"],
            }
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def configuration(kind: str, *entries: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "accelbind", **metadata},
        "webhooks": list(entries or (entry("pods.accelbind.dev"),)),
    }


def empty_secret(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": "accelbind"}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}


def apply_manifests(api: ApiServerStandIn, *, configurations: bool = True) -> None:
    """What `kubectl apply` leaves: empty Secrets, configurations without bundles."""
    api.seed({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for name in (CA, TLS):
        api.seed(empty_secret(name))
    if configurations:
        api.seed(configuration(MUTATING, entry("a.accelbind.dev"), entry("b.accelbind.dev")))
        api.seed(configuration(VALIDATING))


def secret(api: ApiServerStandIn, name: str) -> dict[str, bytes]:
    item = api.get("Secret", name, NAMESPACE)
    assert item is not None
    return {key: base64.b64decode(text) for key, text in (item.get("data") or {}).items()}


def edit_secret(api: ApiServerStandIn, name: str, **changes: bytes | None) -> None:
    """Edits a Secret by hand; keys are spelt with `_` for `.`, and None takes one out."""
    item = api.get("Secret", name, NAMESPACE)
    assert item is not None
    data = dict(item.get("data") or {})
    for spelt, value in changes.items():
        key = spelt.replace("_", ".")
        data.pop(key, None)
        if value is not None:
            data[key] = base64.b64encode(value).decode()
    api.put(item | {"data": data})


def bundles(api: ApiServerStandIn) -> list[bytes]:
    """The bundles in all entries of the configurations."""
    entries: list[dict[str, Any]] = []
    for kind in (MUTATING, VALIDATING):
        item = api.get(kind, "accelbind")
        entries += (item or {}).get("webhooks", [])
    return [base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in entries]


def the_bundle(api: ApiServerStandIn) -> tuple[x509.Certificate, ...]:
    """The CAs that all configurations agree on."""
    held = set(bundles(api))
    assert len(held) == 1, "the configurations trust different CAs"
    return certificates_in(held.pop()).all


def serving(api: ApiServerStandIn) -> x509.Certificate:
    [certificate] = certificates_in(secret(api, TLS)["tls.crt"]).all
    return certificate


@dataclass
class Cluster:
    """A stand-in, a clock, and keepers with a client each."""

    api: ApiServerStandIn
    clock: Hands = field(default_factory=Hands)
    rules: Rules = RULES
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def rule(self, **changes: Any) -> None:
        self.rules = replace(self.rules, **changes)

    async def keeper(self, orders: Orders | None = None) -> "Kept":
        client = connector(self.api.kubeconfig_path)()
        await self._stack.enter_async_context(client)
        return Kept(Keeper(PLACES, self.rules, self.clock, orders), client)

    async def aclose(self) -> None:
        await self._stack.aclose()


@dataclass
class Kept:
    """A keeper and whom it asks."""

    keeper: Keeper
    client: ClusterClient

    async def round(self) -> Any:
        return await self.keeper.round(self.client)


@asynccontextmanager
async def running_cluster(api: ApiServerStandIn) -> AsyncIterator[Cluster]:
    cluster = Cluster(api)
    try:
        yield cluster
    finally:
        await cluster.aclose()
