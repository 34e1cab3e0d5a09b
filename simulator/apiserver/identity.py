"""Authentication and authorization: bearer tokens, users, and the rules of their roles."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.apiserver.resources import Target
from simulator.apiserver.wire import Json


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a Role (with a namespace) or of a ClusterRole; `*` is not understood."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str] = frozenset()
    namespace: str = ""

    def allows(self, verb: str, target: Target) -> bool:
        """Whether it allows a verb on a target."""
        resource = target.resource.plural
        if target.subresource:
            resource = f"{resource}/{target.subresource}"
        return (
            verb in self.verbs
            and target.resource.group in self.groups
            and resource in self.resources
            and (not self.names or target.name in self.names)
            and (not self.namespace or target.namespace == self.namespace)
        )


def rules_of(role: Json) -> tuple[Rule, ...]:
    """The rules of a Role or ClusterRole."""
    return tuple(
        Rule(
            frozenset(rule["verbs"]),
            frozenset(rule["apiGroups"]),
            frozenset(rule["resources"]),
            frozenset(rule.get("resourceNames", ())),
            role["metadata"].get("namespace", ""),
        )
        for rule in role["rules"]
    )


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as a real API server describes it to webhooks."""

    username: str = "admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[Rule, ...] | None = None
    """What the user may do; None is everything."""

    def may(self, verb: str, target: Target) -> bool:
        """Whether the user may do that."""
        return self.rules is None or any(rule.allows(verb, target) for rule in self.rules)

    def user_info(self) -> Json:
        """The `userInfo` of a review."""
        info: Json = {"username": self.username, "groups": list(self.groups)}
        extra = {name: list(values) for name, values in self.extra.items()}
        return info | ({"extra": extra} if extra else {})


class Tokens:
    """The bearer tokens that are accepted, each with the user it stands for."""

    def __init__(self, admin: str = "") -> None:
        self._known: dict[str, Identity] = {}
        self.replace_admin(admin)

    def allow(self, token: str, identity: Identity) -> None:
        """Accepts one more token."""
        self._known[token] = identity

    def replace_admin(self, token: str = "") -> None:
        """Accepts this administrator's token, or one that is made up, instead of the old one."""
        self._known = {key: who for key, who in self._known.items() if who.rules is not None}
        self.admin = token or secrets.token_urlsafe(24)
        self.allow(self.admin, Identity())

    def identify(self, authorization: str) -> Identity | None:
        """The user of an `Authorization` header; None where the token is missing or unknown."""
        scheme, _, token = authorization.partition(" ")
        return self._known.get(token.strip()) if scheme.lower() == "bearer" else None
