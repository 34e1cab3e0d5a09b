"""What `accelbind doctor` checks about definitions: of the custom resources, and the policies.

RBAC lets the certificates' account update our webhook configurations completely, and create Secrets
of any type. That it may change only `caBundle`, and create only Secrets of type Opaque, is the work
of two ValidatingAdmissionPolicies and their bindings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from accelbind.doctor.cluster import APPLY, Cluster, Json, part
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, warning
from services.kube.objects import GROUP, PLURALS
from services.process.text import plain

_APPLY: Final = "kubectl apply --server-side -k manifests/crd"
_OLD: Final = (
    "its objects are of v1, from before version 0.18 of Intel's suite: save them, delete the"
    f" definition, {_APPLY}, and write them again as v2 (docs/migration.md)"
)


@dataclass(frozen=True, slots=True)
class Definition:
    """What our definition of a kind says; a test compares it with the manifests."""

    kind: str
    fields: Mapping[str, str | tuple[str, ...]]
    """The pattern or the values of each field of `spec`."""
    rules: int
    """Number of CEL rules of `spec` and of the name."""


_ID: Final = "^[0-9a-f]{8,32}$"
DEFINITIONS: Final[Mapping[str, Definition]] = {
    "acceleratorfunctions": Definition(
        "AcceleratorFunction",
        {"afuId": "^[0-9a-f]{8,40}$", "interfaceId": _ID, "mode": ("af", "region")},
        3,
    ),
    "fpgaregions": Definition("FpgaRegion", {"interfaceId": _ID, "mode": ("regiondevel",)}, 1),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What a policy for the certificates' account says; a test compares it with the manifests."""

    name: str
    resources: tuple[str, ...]
    validations: int
    """Their number."""
    risk: str


ACCOUNT: Final = "accelbind-certs"
POLICIES: Final = (
    Policy(
        "accelbind-certs",
        PLURALS,
        3,
        f"{ACCOUNT} could change more of our webhook configurations than caBundle",
    ),
    Policy(
        "accelbind-certs-secrets",
        ("secrets",),
        1,
        f"{ACCOUNT} could create a Secret that the cluster fills with another account's token",
    ),
)


def check_definitions(cluster: Cluster) -> Iterator[Line]:
    """Are both kinds of mappings defined?"""
    for plural, expected in DEFINITIONS.items():
        name = f"{plural}.fpga.intel.com"
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        found = cluster.get(path)
        if found is None:
            yield failed(f"{name} is not defined: there can be no mappings", _APPLY)
            continue
        lines = [*_definition_lines(name, found, expected)]
        yield from lines or [ok(f"{name} is accelbind's")]


def _definition_lines(name: str, found: Json, expected: Definition) -> Iterator[Line]:
    spec, status = part(found, "spec"), part(found, "status")
    if spec.get("scope") != "Namespaced" or part(spec, "names").get("kind") != expected.kind:
        yield failed(f"{name} defines something other than {expected.kind}s", _APPLY)
        return
    versions = {one.get("name"): one for one in spec.get("versions") or ()}
    version: Json = versions.get("v2") or {}
    if not version.get("served"):
        todo = _OLD if "v1" in (status.get("storedVersions") or ()) else _APPLY
        yield failed(f"{name} does not serve version v2", todo)
        return
    for one in status.get("conditions") or ():
        if one.get("type") in {"Established", "NamesAccepted"} and one.get("status") != "True":
            yield failed(f"{name}: {one['type']} is not true: {one.get('message')}", _APPLY)
    if different := [*_differences(version, expected)]:
        yield warning(
            f"{name} is not accelbind's ({'; '.join(different)}): it accepts mappings that no pod"
            " can use",
            f"{_APPLY}, which keeps all objects",
        )


def _differences(version: Json, expected: Definition) -> Iterator[str]:
    properties = part(version, "schema", "openAPIV3Schema", "properties")
    spec = part(properties, "spec")
    for name, wanted in expected.fields.items():
        got = part(spec, "properties", name)
        found = got.get("pattern") if isinstance(wanted, str) else tuple(got.get("enum") or ())
        if found != wanted:
            yield f"spec.{name} accepts other values"
    of_name = part(properties, "metadata", "properties", "name")
    rules = sum(len(each.get("x-kubernetes-validations") or ()) for each in (spec, of_name))
    if rules < expected.rules:
        yield "rules are missing"


def check_policy(cluster: Cluster) -> Iterator[Line]:
    """Can the account accelbind-certs change only caBundle?"""
    where = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/{ACCOUNT}"
    try:
        if cluster.get(where) is None:
            yield skipped(f"there is no account {ACCOUNT} in namespace {cluster.namespace}")
            return
    except Unseen:
        pass  # it may exist
    for policy in POLICIES:
        found = cluster.get(f"{GROUP}/validatingadmissionpolicies/{policy.name}")
        if found is None:
            yield warning(
                f"there is no ValidatingAdmissionPolicy {policy.name}: {policy.risk}",
                f"{APPLY}; before Kubernetes 1.30 use cert-manager",
            )
            continue
        bindings = cluster.items(f"{GROUP}/validatingadmissionpolicybindings")
        lines = [*_policy_lines(policy, part(found, "spec")), *_binding_lines(policy, bindings)]
        yield from lines or [ok(f"ValidatingAdmissionPolicy {policy.name} is there and bound")]


def _policy_lines(policy: Policy, spec: Json) -> Iterator[Line]:
    if spec.get("failurePolicy", "Fail") != "Fail":
        yield warning(
            f"{policy.name}: failurePolicy is {plain(str(spec['failurePolicy']))}: if an expression"
            " fails, everything is allowed",
            APPLY,
        )
    rules = part(spec, "matchConstraints").get("resourceRules") or ()
    covered = {each for rule in rules for each in rule.get("resources") or ()}
    missing = [each for each in policy.resources if not {each, "*"} & covered]
    if missing:
        yield failed(f"{policy.name} does not cover {', '.join(missing)}: {policy.risk}", APPLY)
    if len(spec.get("validations") or ()) < policy.validations:
        yield failed(f"{policy.name}: validations are missing: {policy.risk}", APPLY)


def _binding_lines(policy: Policy, bindings: Sequence[Json]) -> Iterator[Line]:
    """Problems of the bindings; one that denies is enough."""
    specs = [part(each, "spec") for each in bindings]
    ours = [spec for spec in specs if spec.get("policyName") == policy.name]
    actions = {str(one) for each in ours for one in each.get("validationActions") or ()}
    if not ours:
        text = f"no ValidatingAdmissionPolicyBinding names {policy.name}: {policy.risk}"
        yield failed(text, APPLY)
    elif "Deny" not in actions:
        found = plain(", ".join(sorted(actions))) or "none"
        text = f"the binding of {policy.name} does not deny (validationActions: {found})"
        yield failed(f"{text}: {policy.risk}", APPLY)
