"""What `accelbind doctor` finds in the policy that holds the certificates' account to `caBundle`.

RBAC lets that account update our webhook configurations as a whole; that it changes one field only
is said by a ValidatingAdmissionPolicy, and by its binding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from accelbind.doctor.cluster import Cluster, Json
from accelbind.doctor.model import Check, Line, Unseen, failed, ok, skipped, warning
from services.kube.objects import GROUP, PLURALS
from services.process.text import plain

ACCOUNT: Final = "accelbind-certs"
POLICY: Final = "accelbind-certs"
VALIDATIONS: Final = 3
"""How many the policy has; the tests hold it against the manifests."""

_APPLY: Final = "kubectl apply --server-side -k OVERLAY puts it right"
_FREE: Final = "its account could change other fields of our webhook configurations than caBundle"


@dataclass(slots=True)
class CertificatesPolicy:
    """The policy and its bindings.

    Args:
        cluster: The cluster.
    """

    cluster: Cluster

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        title = f"May the account {ACCOUNT} change caBundle only?"
        return [Check("cluster.policy", title, self.look)]

    def look(self) -> Iterator[Line]:
        """Whether the policy is there, is bound, and says what it should."""
        if not self._is_used():
            yield skipped(f"there is no account {ACCOUNT} in namespace {self.cluster.namespace}")
            return
        policy = self.cluster.get(f"{GROUP}/validatingadmissionpolicies/{POLICY}")
        if policy is None:
            yield warning(
                f"there is no ValidatingAdmissionPolicy {POLICY}: {_FREE}",
                f"{_APPLY}; before Kubernetes 1.30 there is none: use cert-manager there",
            )
            return
        lines = [*_judged(policy.get("spec") or {}), *self._bound()]
        yield from lines or [ok(f"ValidatingAdmissionPolicy {POLICY} is there and bound")]

    def _is_used(self) -> bool:
        """Whether there is an account to be held; taken to be so where we may not see it."""
        where = f"/api/v1/namespaces/{self.cluster.namespace}/serviceaccounts/{ACCOUNT}"
        try:
            return self.cluster.get(where) is not None
        except Unseen:
            return True

    def _bound(self) -> Iterator[Line]:
        """What is wrong with its bindings: any one that denies is enough."""
        bindings = [
            each.get("spec") or {}
            for each in self.cluster.items(f"{GROUP}/validatingadmissionpolicybindings")
        ]
        ours = [each for each in bindings if each.get("policyName") == POLICY]
        if not ours:
            yield failed(
                f"no ValidatingAdmissionPolicyBinding names {POLICY}: {_FREE}",
                _APPLY,
            )
        elif not any("Deny" in (each.get("validationActions") or ()) for each in ours):
            actions = sorted({one for each in ours for one in each.get("validationActions") or ()})
            yield failed(
                f"the binding of {POLICY} doesn't deny (validationActions:"
                f" {plain(', '.join(map(str, actions))) or 'none'}): {_FREE}",
                _APPLY,
            )


def _judged(spec: Json) -> Iterator[Line]:
    """What is wrong with what a policy says."""
    if spec.get("failurePolicy", "Fail") != "Fail":
        yield warning(
            f"{POLICY}: failurePolicy is {plain(str(spec['failurePolicy']))}: where an expression"
            " fails, everything passes",
            _APPLY,
        )
    rules = (spec.get("matchConstraints") or {}).get("resourceRules") or ()
    about = {each for rule in rules for each in rule.get("resources") or ()}
    missing = [each for each in PLURALS if not {each, "*"} & about]
    if missing:
        yield failed(f"{POLICY} is not about {', '.join(missing)}: {_FREE}", _APPLY)
    if len(spec.get("validations") or ()) < VALIDATIONS:
        yield failed(f"{POLICY}: validations are missing: {_FREE}", _APPLY)
