"""What `accelbind doctor` checks about the rights of accelbind's accounts.

The API server itself answers, by SubjectAccessReview. Who may not ask about others asks about
itself, if it is one of the accounts.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from accelbind.doctor.cluster import Cluster, Json
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, unseen, warning
from accelbind.doctor.pools import read_uses
from services.devices.model import PluginMode
from services.kube.client import HttpResponse
from services.process.text import plain

_REVIEWS: Final = "/apis/authorization.k8s.io/v1"
_WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_CREATED: Final = 201
_MAPPINGS: Final = "fpga.intel.com"
_HOOKS: Final = "admissionregistration.k8s.io"
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
        *(Right(verb, "events", "", "default") for verb in ("create", "patch")),
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

NEEDED_TO_PROGRAM: Final = tuple(Right(verb, "events") for verb in ("create", "patch"))
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


def check_webhook_access(cluster: Cluster) -> Iterator[Line]:
    """The rights of the webhook's account."""
    return _check_account(cluster, WEBHOOK, NEEDED[WEBHOOK])


def check_certs_access(cluster: Cluster) -> Iterator[Line]:
    """The rights of the certificates' account."""
    return _check_account(cluster, CERTS, NEEDED[CERTS])


def check_plugin_access(cluster: Cluster) -> Iterator[Line]:
    """The rights of the accounts of all pools, or of the usual one if no pool is known."""
    try:
        uses = read_uses(cluster)
    except Unseen:
        uses = {}
    for account, modes in sorted(uses.items()) or [(PLUGIN, set())]:
        needed, spare = _rights_by_mode(modes)
        yield from _check_account(cluster, account, (*NEEDED[PLUGIN], *needed), spare)


def _check_account(
    cluster: Cluster,
    account: str,
    needed: Sequence[Right],
    spare: Mapping[Right, str] = MappingProxyType({}),
) -> Iterator[Line]:
    """Rights that an account lacks, and rights that it does not need.

    Args:
        cluster: The cluster.
        account: Its name in accelbind's namespace.
        needed: What it needs.
        spare: What no mode in use needs, each with the account that has it.
    """
    namespace = cluster.namespace
    known = True
    try:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"
        if cluster.get(path) is None:
            yield skipped(f"there is no account {account} in namespace {namespace}")
            return
    except Unseen:
        known = False  # the API server may answer questions about its rights nevertheless
    needed = [
        right._replace(namespace=namespace) if right.namespace == _SYSTEM else right
        for right in needed
    ]
    rights = [*needed, *EXCESSIVE, *spare]
    answers = _review(cluster, account, rights)
    if isinstance(answers, Line):
        yield answers
        return
    allowed = {right for right, answer in zip(rights, answers, strict=True) if _allows(answer)}
    if not known and not allowed:
        yield unseen(f"nothing is known of an account {account} in namespace {namespace}")
        return
    yield from _right_lines(account, needed, spare, allowed)


def _right_lines(
    account: str, needed: Sequence[Right], spare: Mapping[Right, str], allowed: set[Right]
) -> Iterator[Line]:
    for right in needed:
        if right not in allowed:
            todo = _REMEDIES.get(right, "kubectl apply --server-side -k OVERLAY")
            yield failed(f"{account} may not {right}", todo)
    for right in EXCESSIVE:
        if right in allowed:
            yield failed(
                f"{account} may {right}, which it does not need",
                f"kubectl get clusterrolebinding,rolebinding -A -o wide | grep {account}",
            )
    for right, other in spare.items():
        if right in allowed:
            yield warning(
                f"{account} may {right}, which no mode in use needs",
                f"run the pool under the account of its mode; only {other} needs this right",
            )
    yield ok(f"{len(allowed.intersection(needed))} of {len(needed)} rights that {account} needs")


def _rights_by_mode(
    uses: Collection[tuple[PluginMode, bool]],
) -> tuple[list[Right], dict[Right, str]]:
    """What the modes in use need, and what they do not need, with the account that has it.

    Both are empty where no mode is known.
    """
    programs = any(mode is PluginMode.REGION for mode, _ in uses)
    enforces = programs or any(enforced for _, enforced in uses)
    needed: list[Right] = []
    spare: dict[Right, str] = {}
    for is_needed, rights, account in (
        (enforces, NEEDED_TO_ENFORCE, "accelbind-plugin-mappings"),
        (programs, NEEDED_TO_PROGRAM, "accelbind-plugin-region"),
    ):
        if is_needed:
            needed += rights
        elif uses:
            spare |= dict.fromkeys(rights, account)
    return needed, spare


# Reviews ------------------------------------------------------------------------------------------


def _review(cluster: Cluster, account: str, rights: list[Right]) -> list[HttpResponse] | Line:
    """Ask about each right of an account; a line if that is not possible."""
    user = f"system:serviceaccount:{cluster.namespace}:{account}"
    groups = [
        "system:serviceaccounts",
        f"system:serviceaccounts:{cluster.namespace}",
        "system:authenticated",
    ]
    about = {"user": user, "groups": groups}
    bodies = [_review_of("SubjectAccessReview", right, about) for right in rights]
    first = cluster.post(f"{_REVIEWS}/subjectaccessreviews", bodies[:1])
    match first[0].status:
        case 201:
            return [*first, *cluster.post(f"{_REVIEWS}/subjectaccessreviews", bodies[1:])]
        case 404:
            return unseen("this API server answers no questions about rights")
        case 403 if _own_name(cluster) == user:
            bodies = [_review_of("SelfSubjectAccessReview", right, {}) for right in rights]
            return cluster.post(f"{_REVIEWS}/selfsubjectaccessreviews", bodies)
        case 403:
            return unseen(
                "we may not ask about the rights of others",
                "RBAC must allow us to create subjectaccessreviews; or try kubectl auth can-i"
                f" --list --as={user}",
            )
        case status:
            return unseen(f"the API server answers {status} to a question about rights")


def _own_name(cluster: Cluster) -> str:
    """Who we are; empty if that is unknown."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    (answer,) = cluster.post(_WHO, [body])
    status = _decode(answer).get("status") or {}
    return str((status.get("userInfo") or {}).get("username", ""))


def _review_of(kind: str, right: Right, about: Json) -> Json:
    attributes = {key: value for key, value in right._asdict().items() if value}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {"resourceAttributes": attributes} | about,
    }


def _allows(answer: HttpResponse) -> bool:
    if answer.status != _CREATED:
        raise Unseen(f"the API server answers {answer.status} to a question about rights")
    return bool((_decode(answer).get("status") or {}).get("allowed"))


def _decode(answer: HttpResponse) -> Json:
    try:
        found = json.loads(answer.body)
    except ValueError as error:
        raise Unseen(f"the answer of the API server is not JSON: {plain(str(error))}") from error
    return found if isinstance(found, dict) else {}
