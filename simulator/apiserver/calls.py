"""One request as the verbs and webhooks see it: what it names, who asks, and what it leaves."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import yaml

from simulator.apiserver.http_server import Request
from simulator.apiserver.identity import Identity
from simulator.apiserver.resources import NAMESPACES, Target
from simulator.apiserver.status import StatusError, bad_request, forbidden
from simulator.apiserver.wire import Json

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")


@dataclass(slots=True)
class Trail:
    """What a request leaves: annotations for the audit log, warnings for the client."""

    annotations: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def annotate(self, name: str, value: object) -> None:
        """Add an annotation; objects become JSON, and the first value stays."""
        self.annotations.setdefault(name, value if isinstance(value, str) else json.dumps(value))


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request that names an object or a collection."""

    target: Target
    request: Request
    identity: Identity
    trail: Trail = field(default_factory=Trail)

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters."""
        return self.request.query

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored."""
        return self.query.get("dryRun") == "All"

    @property
    def content_type(self) -> str:
        """The body's media type, without parameters."""
        return self.request.headers.get("content-type", "").split(";")[0].strip()

    def authorize(self, verb: str) -> None:
        """Raises 403 unless the user may do that."""
        resource, namespace = self.target.resource, self.target.namespace
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        if not self.identity.may(verb, self.target):
            why = (
                f'User "{self.identity.username}" cannot {verb} resource "{resource.plural}" in'
                f' API group "{resource.group}" {where}'
            )
            raise forbidden(resource, self.target.name, why)

    def decode(self) -> Json:
        """The body as a JSON object, or an error 400 or 415."""
        if self.content_type not in ("", "application/json", *MERGES):
            raise StatusError(415, f"the body of the request was in {self.content_type}, not JSON")
        try:
            return msgspec.json.decode(self.request.body, type=Json)
        except msgspec.DecodeError as error:
            raise bad_request(f"the body is no JSON object: {error}") from error

    def applied(self) -> Json:
        """The object of a server-side apply."""
        item: Json = yaml.safe_load(self.request.body)
        return item


@dataclass(frozen=True, slots=True)
class Operation:
    """What a call does to an object, as a review describes it.

    Args:
        kind: `CREATE`, `UPDATE` or `DELETE`.
        name: empty where it is still to be generated.
        old: the object before, for an update or deletion.
    """

    call: ApiCall
    kind: str
    name: str
    old: Json | None = None

    @property
    def namespace(self) -> str:
        """Empty for cluster-wide kinds; a namespace is in itself."""
        target = self.call.target
        return self.name if target.resource is NAMESPACES else target.namespace

    def as_request(self) -> Json:
        """What a review says of the request, apart from objects and options; in the real order."""
        target = self.call.target
        version = {"group": target.resource.group, "version": target.resource.version}
        kind, plural = (
            version | {"kind": target.resource.kind},
            version | {"resource": target.resource.plural},
        )
        fields: Json = {
            "kind": kind,
            "resource": plural,
            "subResource": target.subresource,
            "requestKind": kind,
            "requestResource": plural,
            "requestSubResource": target.subresource,
            "name": self.name,
            "namespace": self.namespace,
            "operation": self.kind,
            "userInfo": self.call.identity.user_info(),
        }
        return {name: value for name, value in fields.items() if value}

    def options(self) -> Json:
        """The options object of the request."""
        options: Json = {"kind": f"{self.kind.title()}Options", "apiVersion": "meta.k8s.io/v1"}
        if self.call.dry_run:
            options["dryRun"] = ["All"]
        for key in ("fieldManager", "fieldValidation"):
            if value := self.call.query.get(key):
                options[key] = value
        return options
