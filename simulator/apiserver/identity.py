"""Authentication: bearer tokens, and the users that reviews and the audit log name."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.apiserver.wire import Json


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as a real API server describes it to webhooks."""

    username: str = "admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    uid: str = ""

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
