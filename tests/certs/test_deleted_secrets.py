"""Secrets that somebody deletes come back, with the rights of the manifests and no others."""

import pytest
from prometheus_client import CollectorRegistry

from certs.certificates import is_signed_by
from certs.keeper import CertificateReconciler
from certs.metrics import CertsMetrics
from services.kube.connection import connector
from services.process.errors import ClusterError
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import secret, serving, the_bundle
from tests.certs.memory import CA, LOCATIONS, NAMESPACE, POLICY, TLS
from tests.manifests.rendering import rendered
from tests.manifests.rights import asked, beyond, rights_of

pytestmark = pytest.mark.anyio

RIGHTS = rights_of(rendered("base"), "accelbind-certs")


class Account:
    """The certificates' account. The stand-in knows no roles: a test compares the requests."""

    def __init__(self, api: ApiServerStandIn) -> None:
        self._path = api.kubeconfig_path
        self._reconciler = CertificateReconciler(
            POLICY, LOCATIONS, CertsMetrics(CollectorRegistry())
        )

    async def reconcile(self) -> None:
        async with connector(self._path)() as client:
            report = await self._reconciler.run_once(client)
        assert not report.problems


@pytest.fixture
def account(api: ApiServerStandIn) -> Account:
    return Account(api)


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
    assert beyond(RIGHTS, asked(api)) == set()


async def test_without_the_right_to_create_the_error_says_what_to_do(
    api: ApiServerStandIn, account: Account
) -> None:
    api.drop("Secret", TLS, NAMESPACE)
    with (
        api.faults.failing(403, matches=lambda request: request.method in ("PATCH", "POST")),
        pytest.raises(ClusterError, match=r"403.*apply the\s+manifests"),
    ):
        await account.reconcile()
