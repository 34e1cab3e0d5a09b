"""A round against the API: what it asks for, and what it leaves alone and restores."""

import base64
from datetime import timedelta
from typing import Any

import pytest

from certs.authority import create_authority, utc_now
from services.process.errors import ClusterError
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import (
    MUTATING,
    VALIDATING,
    bundles,
    configuration,
    reconcile,
    secret,
    serving,
    the_bundle,
)
from tests.certs.memory import CA, NAMESPACE, TLS
from tests.manifests.rendering import rendered
from tests.manifests.rights import asked, beyond, rights_of


async def test_of_a_configuration_only_the_bundle_changes(api: ApiServerStandIn) -> None:
    await reconcile(api)
    full = api.get(MUTATING, "accelbind")
    assert full is not None
    full["webhooks"][0]["clientConfig"].pop("caBundle")
    full["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    before = api.put(full)
    await reconcile(api)
    after = api.get(MUTATING, "accelbind")
    assert after is not None
    assert after["webhooks"][0]["clientConfig"].pop("caBundle")
    before["webhooks"][0]["clientConfig"].pop("caBundle", None)
    for item in (before, after):
        for name in ("resourceVersion", "generation", "managedFields"):
            item["metadata"].pop(name, None)
    assert after == before


async def test_entries_of_other_services_and_urls_are_left_alone(api: ApiServerStandIn) -> None:
    stranger = create_authority(utc_now(), timedelta(days=1))
    theirs = base64.b64encode(stranger.certificate.pem).decode()
    configs: dict[str, dict[str, Any]] = {
        "x.example.dev": {"service": {"name": "other", "namespace": "elsewhere"}},
        "z.example.dev": {"url": "https://other.example:8443/mutate", "caBundle": theirs},
        "n.accelbind.dev": {"url": "https://other.example:8443/mutate"},
    }
    given = configuration(MUTATING)
    (entry,) = given["webhooks"]
    given["webhooks"] = [
        entry | {"name": name, "clientConfig": config} for name, config in configs.items()
    ]
    api.put(given)
    await reconcile(api)
    item = api.get(MUTATING, "accelbind")
    assert item is not None
    ours = base64.b64encode(secret(api, CA)["ca.crt"]).decode()
    held = [each["clientConfig"].get("caBundle", "") for each in item["webhooks"]]
    assert held == ["", theirs, ours]


@pytest.mark.parametrize(
    ("annotation", "writer"),
    [
        ("cert-manager.io/inject-ca-from", "cert-manager"),
        ("accelbind.dev/ca-bundle", "the Helm chart"),
    ],
)
async def test_a_configuration_whose_bundle_another_maintains_is_left_alone(
    api: ApiServerStandIn, annotation: str, writer: str
) -> None:
    given = configuration(VALIDATING)
    given["metadata"]["annotations"] = {annotation: "a/b"}
    api.put(given)
    report = await reconcile(api)
    [problem] = report.problems
    assert f"{writer} maintains its bundle" in problem
    assert bundles(api)[-1] == b""


# Secrets that somebody deletes

RIGHTS = rights_of(rendered("base"), "accelbind-certs")
"""Of the account. The stand-in knows no roles: a test compares the requests."""


@pytest.mark.parametrize("deleted", [TLS, CA])
async def test_a_deleted_secret_comes_back_within_a_round(
    api: ApiServerStandIn, deleted: str
) -> None:
    await reconcile(api)
    [before] = the_bundle(api)
    api.drop("Secret", deleted, NAMESPACE)
    assert (await reconcile(api)).problems == ()
    assert set(secret(api, CA)) >= {"ca.crt", "ca.key"}
    assert set(secret(api, TLS)) == {"ca.crt", "tls.crt", "tls.key"}
    trusted = the_bundle(api)
    assert before in trusted, "replicas serve certificates of the CA before"
    assert any(serving(api).is_signed_by(one) for one in trusted)
    item = api.get("Secret", deleted, NAMESPACE)
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
