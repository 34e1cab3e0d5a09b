"""Checks of `accelbind doctor`: the account of `accelbind certs run`."""

import contextlib
from collections.abc import Iterator
from typing import Final

from accelbind.cluster import part
from accelbind.doctor.cluster import APPLY, Cluster
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, warning
from services.kube.objects import GROUP

CERTS: Final = "accelbind-certs"
_POLICY: Final = "ValidatingAdmissionPolicy"

# RBAC lets the account update our webhook configurations completely, and create Secrets of any
# type. Policies limit that, and nothing else notices that they or their bindings are missing.
POLICIES: Final = {
    "accelbind-certs": "could change more of our webhook configurations than caBundle",
    "accelbind-certs-secrets": "could create a Secret that the cluster fills with another token",
}
"""What the account could do without each of its policies."""


def check_policy(cluster: Cluster) -> Iterator[Line]:
    """Can the account accelbind-certs change only caBundle?"""
    account = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/{CERTS}"
    with contextlib.suppress(Unseen):  # it may exist
        if cluster.get(account) is None:
            yield skipped(f"there is no account {CERTS} in namespace {cluster.namespace}")
            return
    specs = [
        part(each, "spec") for each in cluster.items(f"{GROUP}/validatingadmissionpolicybindings")
    ]
    for name, risk in POLICIES.items():
        denies = any(
            spec.get("policyName") == name and "Deny" in (spec.get("validationActions") or ())
            for spec in specs
        )
        if cluster.get(f"{GROUP}/validatingadmissionpolicies/{name}") is None:
            text = f"there is no {_POLICY} {name}: {CERTS} {risk}"
            yield warning(text, f"{APPLY}; before Kubernetes 1.30 use cert-manager")
        elif not denies:
            yield failed(f"no {_POLICY}Binding of {name} denies anything: {CERTS} {risk}", APPLY)
        else:
            yield ok(f"{_POLICY} {name} is there and bound")
