"""The chart refuses a change of `certificates.source` during which pods would be refused.

Helm reads the installation from an API server stand-in, as it does in an upgrade.
"""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from certs.authority import create_authority
from simulator.apiserver.resources import resource
from simulator.apiserver.standin import ApiServerStandIn
from tests.manifests.helm import CHART, helm
from tests.manifests.rendering import NAMESPACE, Json, one, rendered
from tests.support import clean_environment

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


async def refused(api: ApiServerStandIn, certificates: Json, home: Path, *options: str) -> str:
    """What the chart says against the values; empty if it renders them."""
    values = json.dumps({"certificates": certificates})
    done = await anyio.run_process(
        [
            *(str(helm()), "template", "accelbind", str(CHART), "--dry-run=server"),
            *("--namespace", NAMESPACE, "--values", "-"),
            *("--kubeconfig", str(api.kubeconfig_path)),
            *options,
        ],
        input=values.encode(),
        env=clean_environment() | {"HOME": str(home)},
        check=False,
    )
    said = done.stderr.decode()
    # Rendered objects go to the API server, which stands in for few kinds.
    return "" if "unable to build kubernetes objects from release manifest" in said else said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
async def test_an_upgrade_is_refused_if_the_webhook_would_not_be_trusted_meanwhile(
    api: ApiServerStandIn, case: Case, tmp_path: Path
) -> None:
    helm()
    install(api, case)
    certificates = {"source": case.source}
    if case.source == "existingSecret":
        certificates |= {"existingSecret": case.secret, "caBundle": case.authorities}
    said = await refused(api, certificates, tmp_path)
    if case.taken:
        assert said == ""
    else:
        assert f"certificates.source {case.source} with Secret" in said
        assert f"the webhook during this upgrade, which has Secret {case.mounted} now" in said
        assert 'follow docs/helm.md, "Change the source of certificates"' in said


async def test_a_first_installation_is_not_compared_with_anything(
    api: ApiServerStandIn, tmp_path: Path
) -> None:
    helm()
    assert await refused(api, {"source": "cert-manager"}, tmp_path) == ""


@pytest.mark.parametrize(
    ("source", "mounted", "annotations"),
    [("own", OWN, NONE), ("cert-manager", THEIRS, BY_CERT_MANAGER)],
)
async def test_helm_must_forget_a_bundle_that_its_last_upgrade_set(
    api: ApiServerStandIn, source: str, mounted: str, annotations: dict[str, str], tmp_path: Path
) -> None:
    helm()
    case = Case("", mounted, OLD, annotations, source, taken=True)
    install(api, case, BY_CHART)
    said = await refused(api, {"source": source}, tmp_path, "--is-upgrade")
    assert f"certificates.source {source}: Helm could delete the caBundle" in said
    assert await refused(api, {"source": source}, tmp_path) == ""
    install(api, case)
    assert await refused(api, {"source": source}, tmp_path, "--is-upgrade") == ""
