"""Secrets that somebody deletes come back, with the rights of the manifests and no others."""

import pytest

from services.process.errors import ClusterError
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import reconcile, secret, serving, the_bundle
from tests.certs.memory import CA, NAMESPACE, TLS
from tests.manifests.rendering import rendered
from tests.manifests.rights import asked, beyond, rights_of

RIGHTS = rights_of(rendered("base"), "accelbind-certs")
"""Of the account. The stand-in knows no roles: a test compares the requests."""


@pytest.mark.parametrize("deleted", [[TLS], [CA]], ids=" ".join)
async def test_a_deleted_secret_comes_back_within_a_round(
    api: ApiServerStandIn, deleted: list[str]
) -> None:
    await reconcile(api)
    [before] = the_bundle(api)
    for name in deleted:
        api.drop("Secret", name, NAMESPACE)
    assert (await reconcile(api)).problems == ()
    assert set(secret(api, CA)) >= {"ca.crt", "ca.key"}
    assert set(secret(api, TLS)) == {"ca.crt", "tls.crt", "tls.key"}
    trusted = the_bundle(api)
    assert before in trusted, "replicas serve certificates of the CA before"
    assert any(serving(api).is_signed_by(one) for one in trusted)
    for name in deleted:
        item = api.get("Secret", name, NAMESPACE)
        assert item is not None
        assert item["type"] == "Opaque"
    assert beyond(RIGHTS, asked(api)) == set()


async def test_without_the_right_to_create_the_error_says_what_to_do(
    api: ApiServerStandIn,
) -> None:
    api.drop("Secret", TLS, NAMESPACE)
    with (
        api.faults.failing(403, matches=lambda request: request.method in ("PATCH", "POST")),
        pytest.raises(ClusterError, match=r"403.*apply the\s+manifests"),
    ):
        await reconcile(api)
