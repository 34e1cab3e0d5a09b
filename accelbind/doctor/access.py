"""What `accelbind doctor` asks about the rights of accelbind's accounts.

The API server itself judges, by SubjectAccessReview; who may not ask about others asks about
itself, where that is one of the accounts. Nothing is tried out.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from accelbind.doctor.cluster import Cluster
from accelbind.doctor.model import Check, Line, Unseen, failed, ok, skipped, unseen, warning
from accelbind.doctor.pools import Pools
from services.devices.model import PluginMode
from services.kube.client import Answer
from services.process.text import plain

Json: TypeAlias = dict[str, Any]

_REVIEWS: Final = "/apis/authorization.k8s.io/v1"
_WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_CREATED: Final = 201
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_MAPPINGS: Final = "fpga.intel.com"
_HOOKS: Final = "admissionregistration.k8s.io"
_SYSTEM: Final = "."
"""Stands for accelbind's own namespace."""


class Right(NamedTuple):
    """Something that an account does.

    Args:
        verb: As RBAC has it.
        resource: Plural.
        group: API group; empty for the core one.
        namespace: Where; empty for the whole cluster.
        name: Of which object; empty for any.
    """

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
    "accelbind-webhook": tuple(
        Right(verb, each, _MAPPINGS) for each in _BOTH for verb in ("list", "watch")
    ),
    "accelbind-plugin": (
        *(Right(verb, "nodes") for verb in ("get", "watch")),
        *(Right(verb, "events", "", "default") for verb in ("create", "patch")),
    ),
    "accelbind-certs": (
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
"""What each account does in every mode; the tests hold it against the manifests."""

NEEDED_TO_ENFORCE: Final = (
    Right("get", "pods"),
    *(Right("list", each, _MAPPINGS) for each in _BOTH),
)
"""What a plugin also does where mappings are enforced: the account accelbind-plugin-mappings."""

NEEDED_TO_PROGRAM: Final = tuple(Right(verb, "events") for verb in ("create", "patch"))
"""What a plugin also does in mode region: the account accelbind-plugin-region."""

_REMEDIES: Final[Mapping[Right, str]] = {
    **dict.fromkeys(
        NEEDED_TO_ENFORCE,
        "add the component mapping-access to the pool, or enforce-mappings with mode af, and apply"
        " it",
    ),
    **dict.fromkeys(NEEDED_TO_PROGRAM, "apply overlays/region, or a pool based on pools/region"),
}

PLUGIN: Final = "accelbind-plugin"

EXCESSIVE: Final = (
    Right("list", "secrets"),
    Right("create", "pods"),
    Right("*", "*", "*"),
)
"""What none of them has any use for."""


@dataclass(slots=True)
class Access:
    """The rights of accelbind's accounts.

    Args:
        cluster: The cluster.
        pools: The plugin's DaemonSets, whose modes tell what their accounts need.
    """

    cluster: Cluster
    pools: Pools

    def checks(self) -> list[Check]:
        """All that this module looks at, a check an account."""
        return [
            Check(
                f"cluster.access.{account.removeprefix('accelbind-')}",
                f"May the account {account} do what it does, and no more?",
                self.of_plugins if account == PLUGIN else partial(self.of, account),
            )
            for account in NEEDED
        ]

    def of_plugins(self) -> Iterator[Line]:
        """The same for the accounts that pools use; for the usual one where no pool is known."""
        try:
            uses = self.pools.uses()
        except Unseen:
            uses = {}
        for account, modes in sorted(uses.items()) or [(PLUGIN, set())]:
            needed, spare = _by_mode(modes)
            yield from self.of(account, (*NEEDED[PLUGIN], *needed), spare)

    def of(
        self, account: str, rights: Sequence[Right] = (), spare: Mapping[Right, str] | None = None
    ) -> Iterator[Line]:
        """What an account lacks, and what it has too much.

        Args:
            account: Its name in accelbind's namespace.
            rights: What it needs; what `NEEDED` says unless told.
            spare: What no mode in use needs, each with the account that has it.
        """
        spare = spare or {}
        namespace = self.cluster.namespace
        where = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"
        known = True
        try:
            if self.cluster.get(where) is None:
                yield skipped(f"there is no account {account} in namespace {namespace}")
                return
        except Unseen:
            known = False  # its rights may be told all the same
        needed = [
            right._replace(namespace=namespace) if right.namespace == _SYSTEM else right
            for right in rights or NEEDED[account]
        ]
        answers = self._reviews(account, [*needed, *EXCESSIVE, *spare])
        if isinstance(answers, Line):
            yield answers
            return
        verdicts = [*map(_allowed, answers)]
        if not known and not any(verdicts):
            yield unseen(f"nothing is known of an account {account} in namespace {namespace}")
            return
        for right, allowed in zip(needed, verdicts, strict=False):
            if not allowed:
                yield failed(
                    f"{account} may not {right}",
                    _REMEDIES.get(
                        right, "kubectl apply --server-side -k OVERLAY gives it the right"
                    ),
                )
        yield from self._beyond(account, verdicts[len(needed) :], spare)
        yield ok(f"{sum(verdicts[: len(needed)])} of {len(needed)} rights that it uses")

    def _beyond(
        self, account: str, verdicts: list[bool], spare: Mapping[Right, str]
    ) -> Iterator[Line]:
        """What an account may do and has no use for."""
        for right, allowed in zip(EXCESSIVE, verdicts, strict=False):
            if allowed:
                yield failed(
                    f"{account} may {right}, which it has no use for",
                    f"kubectl get clusterrolebinding,rolebinding -A -o wide | grep {account}",
                )
        for (right, other), allowed in zip(spare.items(), verdicts[len(EXCESSIVE) :], strict=True):
            if allowed:
                yield warning(
                    f"{account} may {right}, which no mode in use needs",
                    f"run the pool under the account of its mode; only {other} needs this right",
                )

    def _reviews(self, account: str, rights: list[Right]) -> list[Answer] | Line:
        user = f"system:serviceaccount:{self.cluster.namespace}:{account}"
        groups = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{self.cluster.namespace}",
            "system:authenticated",
        ]
        bodies = [
            _review("SubjectAccessReview", right, {"user": user, "groups": groups})
            for right in rights
        ]
        first = self.cluster.post(f"{_REVIEWS}/subjectaccessreviews", bodies[:1])
        if first[0].status == _CREATED:
            rest = self.cluster.post(f"{_REVIEWS}/subjectaccessreviews", bodies[1:])
            return [*first, *rest]
        if first[0].status == _NOT_FOUND:
            return unseen("this API server judges no rights (authorization.k8s.io)")
        if first[0].status != _FORBIDDEN:
            return unseen(f"the API server answers {first[0].status} to a question about rights")
        if self._ourselves() != user:
            return unseen(
                "we may not ask about the rights of others",
                "RBAC must allow us to create subjectaccessreviews; kubectl auth can-i --list"
                f" --as={user} needs impersonation",
            )
        return self.cluster.post(
            f"{_REVIEWS}/selfsubjectaccessreviews",
            [_review("SelfSubjectAccessReview", right, {}) for right in rights],
        )

    def _ourselves(self) -> str:
        """Who we are; empty if that isn't told."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        (answer,) = self.cluster.post(_WHO, [body])
        status = _decoded(answer).get("status") or {}
        return str((status.get("userInfo") or {}).get("username", ""))


def _by_mode(
    uses: Collection[tuple[PluginMode, bool]],
) -> tuple[list[Right], dict[Right, str]]:
    """What the modes in use need, and what they do not need, with the account that has it.

    Nothing of either where no mode is known.
    """
    programs = any(mode is PluginMode.REGION for mode, _ in uses)
    enforces = programs or any(enforced for _, enforced in uses)
    needed: list[Right] = []
    spare: dict[Right, str] = {}
    for wanted, rights, account in (
        (enforces, NEEDED_TO_ENFORCE, "accelbind-plugin-mappings"),
        (programs, NEEDED_TO_PROGRAM, "accelbind-plugin-region"),
    ):
        if wanted:
            needed += rights
        elif uses:
            spare |= dict.fromkeys(rights, account)
    return needed, spare


def _review(kind: str, right: Right, more: Json) -> Json:
    attributes = {key: value for key, value in right._asdict().items() if value}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {"resourceAttributes": attributes} | more,
    }


def _allowed(answer: Answer) -> bool:
    """Whether a review says yes.

    Raises:
        Unseen: It says nothing.
    """
    if answer.status != _CREATED:
        raise Unseen(f"the API server answers {answer.status} to a question about rights")
    return bool((_decoded(answer).get("status") or {}).get("allowed"))


def _decoded(answer: Answer) -> Json:
    try:
        found = json.loads(answer.body)
    except ValueError as error:
        raise Unseen(f"the answer of the API server is no JSON: {plain(str(error))}") from error
    return found if isinstance(found, dict) else {}
