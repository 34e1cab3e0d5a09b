"""Authentication and authorization: bearer tokens, users, and the rules of their roles."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.apiserver.paths import Target
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
    uid: str = ""
    rules: tuple[Rule, ...] | None = None
    """What the user may do; None is everything."""

    def may(self, verb: str, target: Target) -> bool:
        """Whether the user may do that."""
        return self.rules is None or any(rule.allows(verb, target) for rule in self.rules)

    def user_info(self) -> Json:
        """The `userInfo` of a review."""
        info: Json = {"username": self.username}
        if self.uid:
            info["uid"] = self.uid
        info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {name: list(values) for name, values in self.extra.items()}
        return info


ADMIN = Identity()


class Tokens:
    """The bearer tokens that are accepted, each with the user it stands for."""

    def __init__(self, admin: str = "") -> None:
        self.admin = admin or secrets.token_urlsafe(24)
        self._known: dict[str, Identity] = {self.admin: ADMIN}

    def allow(self, token: str, identity: Identity) -> None:
        """Accepts one more token."""
        self._known[token] = identity

    def replace_admin(self, token: str = "") -> str:
        """Accepts a new administrator's token instead of the old one, and returns it."""
        self._known.pop(self.admin)
        self.admin = token or secrets.token_urlsafe(24)
        self._known[self.admin] = ADMIN
        return self.admin

    def identify(self, authorization: str) -> Identity | None:
        """The user of an `Authorization` header; None where the token is missing or unknown."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        for known, identity in self._known.items():
            if hmac.compare_digest(known.encode(), token.strip().encode()):
                return identity
        return None
