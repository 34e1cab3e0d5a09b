"""What `accelbind doctor` checks about definitions: of the custom resources, and the policy.

RBAC lets the certificates' account update our webhook configurations completely. That it may change
only `caBundle` is the work of a ValidatingAdmissionPolicy and its binding.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from accelbind.doctor.cluster import APPLY, Cluster, Json
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


DEFINITIONS: Final[Mapping[str, Definition]] = {
    "acceleratorfunctions": Definition(
        "AcceleratorFunction",
        {
            "afuId": "^[0-9a-f]{8,40}$",
            "interfaceId": "^[0-9a-f]{8,32}$",
            "mode": ("af", "region"),
        },
        3,
    ),
    "fpgaregions": Definition(
        "FpgaRegion", {"interfaceId": "^[0-9a-f]{8,32}$", "mode": ("regiondevel",)}, 1
    ),
}

ACCOUNT: Final = "accelbind-certs"
POLICY: Final = "accelbind-certs"
VALIDATIONS: Final = 3
"""Number of validations of the policy; a test compares it with the manifests."""
_RISK: Final = f"{ACCOUNT} could change more of our webhook configurations than caBundle"


def check_definitions(cluster: Cluster) -> Iterator[Line]:
    """Whether the custom resources are defined, and as we define them."""
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
    spec, status = found.get("spec") or {}, found.get("status") or {}
    if spec.get("scope") != "Namespaced" or (spec.get("names") or {}).get("kind") != expected.kind:
        yield failed(f"{name} defines something other than {expected.kind}s", _APPLY)
        return
    served: list[Json] = [one for one in spec.get("versions") or () if one.get("name") == "v2"]
    version: Json = served[0] if served else {}
    if not version.get("served"):
        todo = _OLD if "v1" in (status.get("storedVersions") or ()) else _APPLY
        yield failed(f"{name} does not serve version v2", todo)
        return
    for one in status.get("conditions") or ():
        if one.get("type") in {"Established", "NamesAccepted"} and one.get("status") != "True":
            yield failed(f"{name}: {one['type']} is not true: {one.get('message')}", _APPLY)
    different = [*_differences(version, expected)]
    if different:
        yield warning(
            f"{name} is not accelbind's ({'; '.join(different)}): it accepts mappings that no pod"
            " can use",
            f"{_APPLY}, which keeps all objects",
        )


def _differences(version: Json, expected: Definition) -> Iterator[str]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    properties = schema.get("properties") or {}
    spec = properties.get("spec") or {}
    for name, wanted in expected.fields.items():
        got = (spec.get("properties") or {}).get(name) or {}
        found = got.get("pattern") if isinstance(wanted, str) else tuple(got.get("enum") or ())
        if found != wanted:
            yield f"spec.{name} accepts other values"
    name_of = ((properties.get("metadata") or {}).get("properties") or {}).get("name") or {}
    rules = sum(len(each.get("x-kubernetes-validations") or ()) for each in (spec, name_of))
    if rules < expected.rules:
        yield "rules are missing"


def check_policy(cluster: Cluster) -> Iterator[Line]:
    """Whether the certificates' account is held to `caBundle`."""
    where = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/{ACCOUNT}"
    try:
        is_used = cluster.get(where) is not None
    except Unseen:
        is_used = True
    if not is_used:
        yield skipped(f"there is no account {ACCOUNT} in namespace {cluster.namespace}")
        return
    policy = cluster.get(f"{GROUP}/validatingadmissionpolicies/{POLICY}")
    if policy is None:
        yield warning(
            f"there is no ValidatingAdmissionPolicy {POLICY}: {_RISK}",
            f"{APPLY}; before Kubernetes 1.30 use cert-manager",
        )
        return
    lines = [*_policy_lines(policy.get("spec") or {}), *_binding_lines(cluster)]
    yield from lines or [ok(f"ValidatingAdmissionPolicy {POLICY} is there and bound")]


def _policy_lines(spec: Json) -> Iterator[Line]:
    if spec.get("failurePolicy", "Fail") != "Fail":
        yield warning(
            f"{POLICY}: failurePolicy is {plain(str(spec['failurePolicy']))}: if an expression"
            " fails, every change is allowed",
            APPLY,
        )
    rules = (spec.get("matchConstraints") or {}).get("resourceRules") or ()
    covered = {each for rule in rules for each in rule.get("resources") or ()}
    missing = [each for each in PLURALS if not {each, "*"} & covered]
    if missing:
        yield failed(f"{POLICY} does not cover {', '.join(missing)}: {_RISK}", APPLY)
    if len(spec.get("validations") or ()) < VALIDATIONS:
        yield failed(f"{POLICY}: validations are missing: {_RISK}", APPLY)


def _binding_lines(cluster: Cluster) -> Iterator[Line]:
    """Problems of the bindings; one that denies is enough."""
    ours = [
        spec
        for each in cluster.items(f"{GROUP}/validatingadmissionpolicybindings")
        if (spec := each.get("spec") or {}).get("policyName") == POLICY
    ]
    actions = {str(one) for each in ours for one in each.get("validationActions") or ()}
    if not ours:
        yield failed(f"no ValidatingAdmissionPolicyBinding names {POLICY}: {_RISK}", APPLY)
    elif "Deny" not in actions:
        found = plain(", ".join(sorted(actions))) or "none"
        yield failed(
            f"the binding of {POLICY} does not deny (validationActions: {found}): {_RISK}", APPLY
        )
