"""Secrets that somebody deletes come back, with the rights of the manifests and no others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from certs.certificates import is_signed_by
from certs.keeper import CertificateReconciler
from certs.metrics import CertsMetrics
from services.kube.client import ClusterClient
from services.kube.connection import connector
from services.kube.objects import ensure_secret
from services.process.errors import ClusterError
from simulator.apiserver.calls import Identity, rules_of
from simulator.apiserver.standin import ApiServerStandIn, kubeconfig
from tests.certs.cluster import secret, serving, the_bundle
from tests.certs.memory import CA, LOCATIONS, NAMESPACE, POLICY, TLS
from tests.support import REPOSITORY

pytestmark = pytest.mark.anyio

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:accelbind-certs"


def roles() -> list[dict[str, Any]]:
    """The Role and the ClusterRole of the manifests."""
    documents = yaml.safe_load_all((REPOSITORY / "manifests/base/certs-rbac.yaml").read_text())
    return [each for each in documents if each["kind"] in ("Role", "ClusterRole")]


class Account:
    """The certificates' account with the roles of the manifests, perhaps without some verbs."""

    def __init__(
        self, api: ApiServerStandIn, folder: Path, *, without: frozenset[str] = frozenset()
    ) -> None:
        rules = [rule for role in roles() for rule in rules_of(role)]
        kept = tuple(replace(rule, verbs=rule.verbs - without) for rule in rules)
        api.tokens.allow("limited", Identity(ACCOUNT, rules=kept))
        self._path = folder / "account"
        self._path.write_text(json.dumps(kubeconfig(api.url, api.authority, "limited")))
        self._reconciler = CertificateReconciler(
            POLICY, LOCATIONS, CertsMetrics(CollectorRegistry())
        )

    def client(self) -> ClusterClient:
        return connector(self._path)()

    async def reconcile(self) -> None:
        async with self.client() as client:
            report = await self._reconciler.run_once(client)
        assert not report.problems


@pytest.fixture
def account(api: ApiServerStandIn, tmp_path: Path) -> Account:
    return Account(api, tmp_path)


@pytest.mark.parametrize("deleted", [[TLS], [CA], [CA, TLS]], ids=" ".join)
async def test_a_deleted_secret_comes_back_within_a_round(
    api: ApiServerStandIn, account: Account, deleted: list[str]
) -> None:
    await account.reconcile()
    [before] = the_bundle(api)
    for name in deleted:
        api.drop("Secret", name, NAMESPACE)
    await account.reconcile()
    assert set(secret(api, CA)) >= {"ca.crt", "ca.key"}
    assert set(secret(api, TLS)) == {"ca.crt", "tls.crt", "tls.key"}
    trusted = the_bundle(api)
    assert before in trusted, "replicas serve certificates of the CA before"
    assert any(is_signed_by(serving(api), one) for one in trusted)
    for name in deleted:
        item = api.get("Secret", name, NAMESPACE)
        assert item is not None
        assert item["type"] == "Opaque"


async def test_no_other_secret_can_be_created_or_read(
    api: ApiServerStandIn, account: Account
) -> None:
    async with account.client() as client:
        with pytest.raises(ClusterError, match="403"):
            await ensure_secret(client, NAMESPACE, "another")
        with pytest.raises(ClusterError, match="403"):
            await ensure_secret(client, "default", CA)
        collection = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        for method, body in (("POST", {"metadata": {"name": CA}}), ("GET", None)):
            assert (await client.request(method, collection, body=body)).status == 403
    assert {each["metadata"]["name"] for each in api.objects("Secret")} == {CA, TLS}


async def test_without_the_right_to_create_the_error_says_what_to_do(
    api: ApiServerStandIn, tmp_path: Path
) -> None:
    account = Account(api, tmp_path, without=frozenset({"create"}))
    api.drop("Secret", TLS, NAMESPACE)
    with pytest.raises(ClusterError, match=r"403.*apply the\s+manifests"):
        await account.reconcile()
