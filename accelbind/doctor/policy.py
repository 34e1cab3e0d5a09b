"""What `accelbind doctor` checks about the account of `accelbind certs run`.

RBAC lets it update our webhook configurations completely, and create Secrets of any type. That it
may change only `caBundle`, and create only Secrets of type Opaque, is the work of two
ValidatingAdmissionPolicies and their bindings. Nothing else notices that they are missing.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from accelbind.doctor.cluster import APPLY, Cluster, part
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, warning
from services.kube.objects import GROUP
from services.process.text import plain

CERTS: Final = "accelbind-certs"
_POLICY: Final = "ValidatingAdmissionPolicy"


class SecurityPolicy(NamedTuple):
    """A policy for the certificates' account; a test compares it with the manifests."""

    name: str
    validations: int
    """Their number."""
    risk: str


POLICIES: Final = (
    SecurityPolicy(
        "accelbind-certs",
        3,
        f"{CERTS} could change more of our webhook configurations than caBundle",
    ),
    SecurityPolicy(
        "accelbind-certs-secrets",
        1,
        f"{CERTS} could create a Secret that the cluster fills with another account's token",
    ),
)


def check_policy(cluster: Cluster) -> Iterator[Line]:
    """Can the account accelbind-certs change only caBundle?"""
    try:
        account = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/{CERTS}"
        if cluster.get(account) is None:
            yield skipped(f"there is no account {CERTS} in namespace {cluster.namespace}")
            return
    except Unseen:
        pass  # it may exist
    for policy in POLICIES:
        yield _policy_line(cluster, policy) or ok(f"{_POLICY} {policy.name} is there and bound")


def _policy_line(cluster: Cluster, policy: SecurityPolicy) -> Line | None:
    """What is wrong with a policy or its bindings, of which one that denies is enough."""
    stored = cluster.get(f"{GROUP}/validatingadmissionpolicies/{policy.name}")
    if stored is None:
        text = f"there is no {_POLICY} {policy.name}: {policy.risk}"
        return warning(text, f"{APPLY}; before Kubernetes 1.30 use cert-manager")
    bindings = cluster.items(f"{GROUP}/validatingadmissionpolicybindings")
    specs = [part(each, "spec") for each in bindings]
    ours = [spec for spec in specs if spec.get("policyName") == policy.name]
    actions = {str(one) for each in ours for one in each.get("validationActions") or ()}
    if len(part(stored, "spec").get("validations") or ()) < policy.validations:
        return failed(f"{policy.name}: validations are missing: {policy.risk}", APPLY)
    if not ours:
        return failed(f"no {_POLICY}Binding names {policy.name}: {policy.risk}", APPLY)
    if "Deny" not in actions:
        shown = plain(", ".join(sorted(actions))) or "none"
        text = f"the binding of {policy.name} does not deny (validationActions: {shown})"
        return failed(f"{text}: {policy.risk}", APPLY)
    return None
