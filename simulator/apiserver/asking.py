"""One request as the verbs see it: target, user and options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from simulator.apiserver import status, wire
from simulator.apiserver.audit import Trail
from simulator.apiserver.http_server import Request
from simulator.apiserver.identity import Identity
from simulator.apiserver.paths import Target
from simulator.apiserver.resources import Resource
from simulator.apiserver.reviews import Attributes
from simulator.apiserver.wire import Json

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request that names an object or a collection.

    Args:
        target: which.
        request: as it came.
        identity: who asks.
        trail: warnings and audit annotations, filled on the way.
    """

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

    @property
    def verb(self) -> str:
        """The verb that authorization knows."""
        if self.request.method in ("GET", "HEAD"):
            if self.query.get("watch") in ("1", "true"):
                return "watch"
            return "get" if self.target.name else "list"
        if self.request.method == "DELETE" and not self.target.name:
            return "deletecollection"
        return VERBS.get(self.request.method, "")

    def authorize(self, verb: str) -> None:
        """Raises 403 unless the user may do that."""
        if self.identity.may(verb, self.target):
            return
        resource, namespace = self.target.resource, self.target.namespace
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        why = (
            f'User "{self.identity.username}" cannot {verb} resource "{resource.plural}" in API'
            f' group "{resource.group}" {where}'
        )
        raise status.forbidden(resource.group, resource.plural, self.target.name, why)

    def options(self, kind: str) -> Json:
        """The options object that webhooks are shown."""
        options: Json = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            options["dryRun"] = ["All"]
        for name in ("fieldManager", "fieldValidation"):
            if value := self.query.get(name):
                options[name] = value
        return options

    def attributes(
        self, operation: str, options_kind: str, name: str, old: Json | None = None
    ) -> Attributes:
        """What a review says besides the object."""
        return Attributes(
            resource=self.target.resource,
            namespace=self.target.namespace or (name if _is_namespace(self.target) else ""),
            name=name,
            operation=operation,
            identity=self.identity,
            options=self.options(options_kind),
            dry_run=self.dry_run,
            old=old,
            subresource=self.target.subresource,
        )

    def decode(self) -> Json:
        """The body as a JSON object, or an error 400 or 415."""
        kind = self.content_type
        if kind not in ("", "application/json"):
            raise status.unsupported_media(kind, ["application/json"])
        return decode_object(self.request.body)


def _is_namespace(target: Target) -> bool:
    return target.resource.key == ("", "namespaces")


def decode_object(body: bytes) -> Json:
    """A JSON object from a body."""
    try:
        item = wire.decode(body)
    except msgspec.DecodeError as error:
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type Object): couldn't get"
            f" version/kind; json parse error: {error}"
        ) from error
    if not isinstance(item, dict) or not isinstance(item.get("metadata", {}), dict | None):
        raise status.bad_request(
            "the object provided is unrecognized (must be of type Object): couldn't get"
            " version/kind; json parse error: not an object"
        )
    return item


def check_kind(resource: Resource, item: Json) -> None:
    """Fill in missing kind and version, and refuse others."""
    kind = item.setdefault("kind", resource.kind)
    version = item.setdefault("apiVersion", resource.api_version)
    if version != resource.api_version:
        raise status.bad_request(
            f"the API version in the data ({version}) does not match the expected API version"
            f" ({resource.api_version})"
        )
    if kind != resource.kind:
        raise status.bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}:'
            f' no kind "{kind}" is registered for this resource'
        )


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as `metav1.Time`."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
