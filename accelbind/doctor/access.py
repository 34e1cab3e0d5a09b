"""What `accelbind doctor` checks about the rights of accelbind's accounts.

The API server itself answers, by SubjectAccessReview. RBAC lets the certificates' account update
our webhook configurations completely, and create Secrets of any type. That it may change only
`caBundle`, and create only Secrets of type Opaque, is the work of two ValidatingAdmissionPolicies
and their bindings.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from accelbind.doctor.cluster import APPLY, Cluster, Json, part
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, warning
from accelbind.doctor.pools import read_uses
from services.devices.model import PluginMode
from services.kube.client import FORBIDDEN, ClusterClient
from services.kube.lists import decode
from services.kube.objects import GROUP
from services.process.text import plain

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_CREATED: Final = 201
_MAPPINGS: Final = "fpga.intel.com"
_HOOKS: Final = "admissionregistration.k8s.io"
_POLICY: Final = "ValidatingAdmissionPolicy"
_SYSTEM: Final = "."
"""Stands for accelbind's own namespace."""

WEBHOOK: Final = "accelbind-webhook"
PLUGIN: Final = "accelbind-plugin"
CERTS: Final = "accelbind-certs"


class Right(NamedTuple):
    """Something that an account may do, in the terms of RBAC; empty is all, or the core group."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.verb == "*":
            return "do everything with everything"
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        what += f"/{self.name}" if self.name else ""
        where = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{self.verb} {what} {where}"


_BOTH: Final = ("acceleratorfunctions", "fpgaregions")
_CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_SECRETS: Final = ("accelbind-ca", "accelbind-webhook-tls")

NEEDED: Final[Mapping[str, tuple[Right, ...]]] = {
    WEBHOOK: tuple(Right(verb, each, _MAPPINGS) for each in _BOTH for verb in ("list", "watch")),
    PLUGIN: (
        *(Right(verb, "nodes") for verb in ("get", "watch")),
        Right("create", "events", "", "default"),
    ),
    CERTS: (
        *(
            Right(verb, "secrets", "", _SYSTEM, name)
            for name in _SECRETS
            for verb in ("get", "update", "patch", "create")
        ),
        *(
            Right(verb, each, _HOOKS, "", "accelbind")
            for each in _CONFIGURATIONS
            for verb in ("get", "update")
        ),
    ),
}
"""The rights that each account needs in every mode; a test compares them with the manifests."""

NEEDED_TO_ENFORCE: Final = (
    Right("get", "pods"),
    *(Right("list", each, _MAPPINGS) for each in _BOTH),
)
"""What a plugin also needs where mappings are enforced: the account accelbind-plugin-mappings."""

NEEDED_TO_PROGRAM: Final = (Right("create", "events"),)
"""What a plugin also needs in mode region: the account accelbind-plugin-region."""

_REMEDIES: Final[Mapping[Right, str]] = {
    **dict.fromkeys(
        NEEDED_TO_ENFORCE,
        "apply the pool with the component mapping-access, or in mode af enforce-mappings",
    ),
    **dict.fromkeys(NEEDED_TO_PROGRAM, "apply overlays/region, or a pool based on pools/region"),
}

EXCESSIVE: Final = (Right("list", "secrets"), Right("create", "pods"), Right("*", "*", "*"))
"""Rights that no account of accelbind needs."""


class Policy(NamedTuple):
    """A policy for the certificates' account; a test compares it with the manifests."""

    name: str
    validations: int
    """Their number."""
    risk: str


POLICIES: Final = (
    Policy(
        "accelbind-certs",
        3,
        f"{CERTS} could change more of our webhook configurations than caBundle",
    ),
    Policy(
        "accelbind-certs-secrets",
        1,
        f"{CERTS} could create a Secret that the cluster fills with another account's token",
    ),
)


def check_webhook_access(cluster: Cluster) -> Iterator[Line]:
    """Does the account accelbind-webhook have its rights, and no more?"""
    return _check_account(cluster, WEBHOOK, NEEDED[WEBHOOK])


def check_certs_access(cluster: Cluster) -> Iterator[Line]:
    """Does the account accelbind-certs have its rights, and no more?"""
    return _check_account(cluster, CERTS, NEEDED[CERTS])


def check_plugin_access(cluster: Cluster) -> Iterator[Line]:
    """Does the account accelbind-plugin have its rights, and no more?"""
    for account, modes in sorted(read_uses(cluster).items()) or [(PLUGIN, set())]:
        needed = [*NEEDED[PLUGIN]]
        programs = any(mode is PluginMode.REGION for mode, _ in modes)
        if programs or any(enforced for _, enforced in modes):
            needed += NEEDED_TO_ENFORCE
        if programs:
            needed += NEEDED_TO_PROGRAM
        yield from _check_account(cluster, account, needed)


def _check_account(cluster: Cluster, account: str, needed: Sequence[Right]) -> Iterator[Line]:
    """Rights that an account lacks, and rights that no account of accelbind needs."""
    namespace = cluster.namespace
    if not _has_account(cluster, account):
        yield skipped(f"there is no account {account} in namespace {namespace}")
        return
    needed = [
        right._replace(namespace=namespace) if right.namespace == _SYSTEM else right
        for right in needed
    ]
    allowed = _allowed(cluster, account, [*needed, *EXCESSIVE])
    for right in needed:
        if right not in allowed:
            todo = _REMEDIES.get(right, "kubectl apply --server-side -k OVERLAY")
            yield failed(f"{account} may not {right}", todo)
    for right in (each for each in EXCESSIVE if each in allowed):
        yield failed(
            f"{account} may {right}, which it does not need",
            f"kubectl get clusterrolebinding,rolebinding -A -o wide | grep {account}",
        )
    yield ok(f"{len(allowed.intersection(needed))} of {len(needed)} rights that {account} needs")


def _has_account(cluster: Cluster, account: str) -> bool:
    path = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/{account}"
    return cluster.get(path) is not None


def _allowed(cluster: Cluster, account: str, rights: Sequence[Right]) -> set[Right]:
    """Those of some rights that an account has."""
    system = "system:serviceaccount"
    user = f"{system}:{cluster.namespace}:{account}"
    groups = [f"{system}s", f"{system}s:{cluster.namespace}", "system:authenticated"]

    async def ask(client: ClusterClient) -> set[Right]:
        return {right for right in rights if await _may(client, right, user, groups)}

    return cluster.query(ask)


async def _may(client: ClusterClient, right: Right, user: str, groups: list[str]) -> bool:
    attributes = {key: value for key, value in right._asdict().items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"resourceAttributes": attributes, "user": user, "groups": groups},
    }
    answer = await client.request("POST", _REVIEWS, body=body)
    if answer.status == FORBIDDEN:
        raise Unseen(
            "RBAC must allow us to create subjectaccessreviews; or try kubectl auth can-i --list"
            f" --as={user}"
        )
    if answer.status != _CREATED:
        raise Unseen(f"the API server answers {answer.status} to a question about rights")
    return bool(part(decode(answer.body, _REVIEWS, Json), "status").get("allowed"))


# Policies -----------------------------------------------------------------------------------------


def check_policy(cluster: Cluster) -> Iterator[Line]:
    """Can the account accelbind-certs change only caBundle?"""
    try:
        if not _has_account(cluster, CERTS):
            yield skipped(f"there is no account {CERTS} in namespace {cluster.namespace}")
            return
    except Unseen:
        pass  # it may exist
    for policy in POLICIES:
        yield _policy_line(cluster, policy) or ok(f"{_POLICY} {policy.name} is there and bound")


def _policy_line(cluster: Cluster, policy: Policy) -> Line | None:
    """What is wrong with a policy or its bindings, of which one that denies is enough."""
    found = cluster.get(f"{GROUP}/validatingadmissionpolicies/{policy.name}")
    if found is None:
        text = f"there is no {_POLICY} {policy.name}: {policy.risk}"
        return warning(text, f"{APPLY}; before Kubernetes 1.30 use cert-manager")
    bindings = cluster.items(f"{GROUP}/validatingadmissionpolicybindings")
    specs = [part(each, "spec") for each in bindings]
    ours = [spec for spec in specs if spec.get("policyName") == policy.name]
    actions = {str(one) for each in ours for one in each.get("validationActions") or ()}
    if len(part(found, "spec").get("validations") or ()) < policy.validations:
        return failed(f"{policy.name}: validations are missing: {policy.risk}", APPLY)
    if not ours:
        return failed(f"no {_POLICY}Binding names {policy.name}: {policy.risk}", APPLY)
    if "Deny" not in actions:
        shown = plain(", ".join(sorted(actions))) or "none"
        text = f"the binding of {policy.name} does not deny (validationActions: {shown})"
        return failed(f"{text}: {policy.risk}", APPLY)
    return None
