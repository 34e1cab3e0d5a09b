"""A round against the API: what it asks for, and what it leaves alone."""

import base64
from datetime import timedelta

import pytest

from certs.authority import create_authority, utc_now
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import (
    MUTATING,
    VALIDATING,
    bundles,
    configuration,
    entry,
    reconcile,
    secret,
)
from tests.certs.memory import CA


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
    entries = (
        entry("x.example.dev", service={"name": "other", "namespace": "elsewhere"}),
        entry("z.example.dev", url="https://other.example:8443/mutate", caBundle=theirs),
        entry("n.accelbind.dev", url="https://other.example:8443/mutate"),
    )
    api.put(configuration(MUTATING, *entries))
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
    api.put(configuration(VALIDATING, annotations={annotation: "a/b"}))
    report = await reconcile(api)
    [problem] = report.problems
    assert f"{writer} maintains its bundle" in problem
    assert bundles(api)[-1] == b""
