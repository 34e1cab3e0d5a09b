"""The chart refuses a change of `certificates.source` during which pods would be refused.

Helm reads the installation from an API server stand-in, as it does in an upgrade.
"""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from certs.authority import create_authority
from simulator.apiserver.resources import resource
from simulator.apiserver.standin import ApiServerStandIn
from tests.manifests.helm import template
from tests.manifests.rendering import NAMESPACE, Json, one, rendered

OLD, NEW = (
    create_authority(datetime.now(UTC), timedelta(days=1)).certificate.pem.decode() for _ in "ab"
)
OWN, THEIRS = "accelbind-webhook-tls", "accelbind-webhook-cert-manager"
BY_CHART = {"accelbind.dev/ca-bundle": "chart"}
BY_CERT_MANAGER = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/accelbind-webhook"}
NONE: dict[str, str] = {}


class Case(NamedTuple):
    """An upgrade: what the cluster has, and the values that Helm gets."""

    about: str
    mounted: str
    """The Secret that the webhook has."""
    bundle: str
    annotations: dict[str, str]
    source: str
    taken: bool
    secret: str = ""
    """The value existingSecret."""
    authorities: str = ""
    """The value caBundle."""


CASES = (
    Case("own again", OWN, OLD, NONE, "own", taken=True),
    Case("cert-manager again", THEIRS, OLD, BY_CERT_MANAGER, "cert-manager", taken=True),
    Case("Secret again", "mine", OLD, BY_CHART, "existingSecret", True, "mine", OLD),
    Case(
        "Secret with a further CA", "mine", OLD, BY_CHART, "existingSecret", True, "mine", OLD + NEW
    ),
    Case("other Secret", "mine", OLD + NEW, BY_CHART, "existingSecret", True, "other", OLD + NEW),
    Case("other Secret and bundle", "mine", OLD, BY_CHART, "existingSecret", False, "other", NEW),
    Case("own to Secret: bundle first", OWN, OLD, NONE, "existingSecret", True, OWN, OLD + NEW),
    Case("own to Secret at once", OWN, OLD, NONE, "existingSecret", False, "mine", NEW),
    Case("cert-manager to Secret", THEIRS, OLD, NONE, "existingSecret", True, THEIRS, OLD + NEW),
    Case("two writers", THEIRS, OLD, BY_CERT_MANAGER, "existingSecret", False, THEIRS, OLD),
    Case("Secret to cert-manager", THEIRS, NEW, BY_CERT_MANAGER, "cert-manager", taken=True),
    Case("bundle of the chart", THEIRS, NEW, BY_CHART, "cert-manager", taken=False),
    Case("own to cert-manager at once", OWN, OLD, NONE, "cert-manager", taken=False),
    Case("to own: CA trusted", "mine", OLD + NEW, NONE, "own", taken=True),
    Case("to own: CA not trusted", "mine", OLD, NONE, "own", taken=False),
    Case("to own, bundle of the chart", OWN, OLD + NEW, BY_CHART, "own", taken=False),
)


@pytest.fixture
def api(api: ApiServerStandIn) -> ApiServerStandIn:
    deployments = resource("Deployment", "apps/v1")
    api.table.put(deployments)
    api.store.shelf(deployments)
    return api


def install(api: ApiServerStandIn, case: Case, by_release: dict[str, str] = NONE) -> None:
    """What Helm can see of an installation; the CA of accelbind's own certificates is NEW.

    `by_release` are the annotations that the release in use gave the Deployment.
    """
    deployment = one(rendered("base"), "Deployment", "accelbind-webhook")
    (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
    volume["secret"]["secretName"] = case.mounted
    deployment["metadata"]["annotations"] = by_release
    api.put(deployment)
    configuration = one(rendered("base"), "MutatingWebhookConfiguration", "accelbind")
    configuration["metadata"]["annotations"] = case.annotations
    bundle = base64.b64encode(case.bundle.encode()).decode()
    for entry in configuration["webhooks"]:
        entry["clientConfig"]["caBundle"] = bundle
    api.put(configuration)
    data = {"ca.crt": base64.b64encode(NEW.encode()).decode()}
    metadata = {"name": OWN, "namespace": NAMESPACE}
    api.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


async def refused(api: ApiServerStandIn, certificates: Json, *options: str) -> str:
    """What the chart says against the values; empty if it renders them."""
    server = ("--dry-run=server", "--kubeconfig", api.kubeconfig_path)
    values = {"certificates": certificates}
    done = await asyncio.to_thread(template, values, *server, *options)
    # Rendered objects go to the API server, which stands in for few kinds.
    rendered_it = "unable to build kubernetes objects from release manifest" in done.stderr
    return "" if rendered_it else done.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
async def test_an_upgrade_is_refused_if_the_webhook_would_not_be_trusted_meanwhile(
    api: ApiServerStandIn, case: Case
) -> None:
    install(api, case)
    certificates = {"source": case.source}
    if case.source == "existingSecret":
        certificates |= {"existingSecret": case.secret, "caBundle": case.authorities}
    said = await refused(api, certificates)
    if case.taken:
        assert said == ""
    else:
        assert f"certificates.source {case.source} with Secret" in said
        assert f"the webhook during this upgrade, which has Secret {case.mounted} now" in said
        assert 'follow docs/helm.md, "Change the source of certificates"' in said


async def test_a_first_installation_is_not_compared_with_anything(api: ApiServerStandIn) -> None:
    assert await refused(api, {"source": "cert-manager"}) == ""


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.about)
async def test_helm_must_forget_a_bundle_that_its_last_upgrade_set(
    api: ApiServerStandIn, case: Case
) -> None:
    install(api, case, BY_CHART)
    values = {"source": case.source}
    said = await refused(api, values, "--is-upgrade")
    assert f"certificates.source {case.source}: Helm could delete the caBundle" in said
    assert await refused(api, values) == ""
    install(api, case)
    assert await refused(api, values, "--is-upgrade") == ""
