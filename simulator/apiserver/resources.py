"""The resources that are served: one table, to which custom resources are added.

Everything generic (storage, lists, watches, patches, discovery) reads this table.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""A decoded JSON object. What it may hold is checked where it is used."""

PATCH_ANNOTATION = "simulator.accelbind.dev/patch"
"""Where an object that webhooks patched has the operations, as JSON."""
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+accelbind-stand-in"}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_STATUS = frozenset({"status"})
_EVENT_FIELDS = frozenset(
    {"reason", "type", *(f"involvedObject.{name}" for name in ("kind", "name", "uid"))}
)


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind and how it is served."""

    group: str
    """Empty for the core group."""
    version: str
    """The one version that is served and stored."""
    plural: str
    kind: str
    namespaced: bool = True
    schema: Json | None = None
    """OpenAPI v3 schema that its objects must fit, for custom resources."""
    subresources: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()
    selectable: frozenset[str] = frozenset()
    """Further fields that field selectors may name."""
    printed: tuple[Json, ...] = ()
    """The columns of a Table, as `additionalPrinterColumns` of a definition."""

    @property
    def key(self) -> tuple[str, str]:
        """Group and plural: what names it in the table."""
        return self.group, self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of its group and version."""
        return f"apis/{self.api_version}" if self.group else "api/v1"

    @property
    def qualified(self) -> str:
        """The plural with its group, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if self.namespaced else name

    def path_of(self, item: Json) -> str:
        return self.path(item["metadata"].get("namespace", ""), item["metadata"]["name"])


def resource(kind: str, api_version: str, **more: Any) -> Resource:  # noqa: ANN401 - its fields
    """A resource whose plural is that of its kind in English."""
    group, _, version = api_version.rpartition("/")
    plural = re.sub("y$", "ie", kind.lower()) + ("es" if kind.endswith("s") else "s")
    return Resource(group, version, plural, kind, **more)


_DOMAIN, _HOOKS, _DRA = "fpga.intel.com/v2", "admissionregistration.k8s.io/v1", "resource.k8s.io/v1"
_WIDE = {"namespaced": False}


def _column(name: str, path: str, kind: str = "string") -> Json:
    return {"name": name, "type": kind, "jsonPath": path}


AGE = _column("Age", ".metadata.creationTimestamp", "date")
PODS = resource(
    "Pod",
    "v1",
    subresources=_STATUS,
    short_names=("po",),
    selectable=frozenset({"spec.nodeName", "status.phase"}),
    printed=(_column("Status", ".status.phase"), _column("Node", ".spec.nodeName"), AGE),
)
NODES = resource("Node", "v1", **_WIDE, subresources=_STATUS, short_names=("no",))
NAMESPACES = resource("Namespace", "v1", **_WIDE, short_names=("ns",))
EVENTS = resource(
    "Event",
    "v1",
    short_names=("ev",),
    selectable=_EVENT_FIELDS,
    printed=(
        _column("Last Seen", ".lastTimestamp", "date"),
        _column("Reason", ".reason"),
        _column("Object", ".involvedObject.name"),
        _column("Message", ".message"),
    ),
)
SECRETS = resource("Secret", "v1")
_MODE = _column("Mode", ".spec.mode")
_TARGET = (
    _column("Resource", ".spec.target.resource"),
    _column("Claim Template", ".spec.target.claimTemplate"),
    _column("Count", ".spec.target.count", "integer"),
)
FUNCTIONS = resource("AcceleratorFunction", _DOMAIN, short_names=("af",), printed=(_MODE, AGE))
REGIONS = resource("FpgaRegion", _DOMAIN, short_names=("fpga",), printed=(_MODE, AGE))
ACCELERATORS = resource(
    "Accelerator", "accelbind.dev/v1alpha1", short_names=("accel",), printed=(*_TARGET, AGE)
)
DAEMONSETS = resource("DaemonSet", "apps/v1", subresources=_STATUS, short_names=("ds",))
MUTATING = resource("MutatingWebhookConfiguration", _HOOKS, **_WIDE)
VALIDATING = resource("ValidatingWebhookConfiguration", _HOOKS, **_WIDE)
DEFINITIONS = resource(
    "CustomResourceDefinition",
    "apiextensions.k8s.io/v1",
    **_WIDE,
    subresources=_STATUS,
    short_names=("crd", "crds"),
)
_OF_SLICES = frozenset({"spec.nodeName", "spec.driver"})
SLICES = resource("ResourceSlice", _DRA, **_WIDE, selectable=_OF_SLICES)
CLASSES = resource("DeviceClass", _DRA, **_WIDE)
CLAIMS = resource("ResourceClaim", _DRA, subresources=_STATUS)
TEMPLATES = resource("ResourceClaimTemplate", _DRA)
BUILT_IN = (
    *(PODS, NODES, NAMESPACES, EVENTS, SECRETS, DAEMONSETS),
    *(FUNCTIONS, REGIONS, ACCELERATORS, MUTATING, VALIDATING, DEFINITIONS),
    *(SLICES, CLASSES, CLAIMS, TEMPLATES),
)


class ResourceTable:
    """Served resources, by group and plural. Custom resource definitions add to it and remove."""

    def __init__(self) -> None:
        self._by_key = {resource.key: resource for resource in BUILT_IN}

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_key.values()))

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        resource = self._by_key.get((group, plural))
        return resource if resource is not None and resource.version == version else None

    def of_kind(self, kind: str) -> Resource:
        """The resource of a kind, whatever its group (KeyError for an unknown one)."""
        for resource in self:
            if resource.kind == kind:
                return resource
        raise KeyError(kind)

    def put(self, resource: Resource) -> None:
        self._by_key[resource.key] = resource

    def drop(self, resource: Resource) -> None:
        self._by_key.pop(resource.key, None)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a path: an object or, without a name, a collection."""

    resource: Resource
    namespace: str = ""
    """Empty for cluster-wide kinds and for lists over all namespaces."""
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace, self.name)

    @property
    def prefix(self) -> str:
        """The beginning of the collection's paths."""
        return f"{self.namespace}/" if self.namespace else ""


def parse(path: str, table: ResourceTable) -> Target | None:
    """The target of a path below `/api/v1` or `/apis/GROUP/VERSION`; None if it names nothing."""
    match path.strip("/").split("/"):
        case ["api", version, *parts] if parts:
            return _target("", version, parts, table)
        case ["apis", group, version, *parts] if parts:
            return _target(group, version, parts, table)
    return None


def _target(group: str, version: str, parts: Sequence[str], table: ResourceTable) -> Target | None:
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource = table.find(group, version, parts[0])
    if resource is None or len(parts) > 3 or "" in parts:
        return None
    name, subresource = (*parts[1:], "", "")[:2]
    if subresource and subresource not in resource.subresources:
        return None
    if resource.namespaced != bool(namespace) and (name or not resource.namespaced):
        return None
    return Target(resource, namespace, name, subresource)


# Discovery, and as much of OpenAPI v3 as kubectl asks for before it sends an object: it searches
# a kind's PATCH for the parameter `fieldValidation`, and then leaves the validation to the server.


def discover(path: str, table: ResourceTable) -> Json | None:  # noqa: PLR0911 - a table of paths
    """The answer to a discovery path; None where there is nothing."""
    by_root: dict[str, list[Resource]] = {}
    for resource in table:
        by_root.setdefault(resource.root, []).append(resource)
    match path.strip("/").split("/"):
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = sorted({resource.group for resource in table} - {""})
            described = [_group(name, table) for name in groups]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": described}
        case ["openapi", "v3"]:
            urls = {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in by_root}
            return {"paths": urls}
        case ["openapi", "v3", *parts] if served := by_root.get("/".join(parts)):
            return _openapi(served)
        case parts if served := by_root.get("/".join(parts)):
            entries = [entry for resource in served for entry in _entries(resource)]
            head = {"kind": "APIResourceList", "apiVersion": "v1"}
            return head | {"groupVersion": served[0].api_version, "resources": entries}
    return None


def _group(name: str, table: ResourceTable) -> Json:
    by_version = {one.api_version: one.version for one in table if one.group == name}
    versions = [{"groupVersion": key, "version": by_version[key]} for key in sorted(by_version)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _entries(resource: Resource) -> list[Json]:
    entry = {"singularName": resource.kind.lower(), "namespaced": resource.namespaced}
    entry |= {"kind": resource.kind, "verbs": _VERBS}
    names = (f"{resource.plural}/{name}" for name in sorted(resource.subresources))
    whole = entry | {"name": resource.plural, "shortNames": resource.short_names}
    return [whole, *(entry | {"name": name} for name in names)]


def _openapi(served: Sequence[Resource]) -> Json:
    paths: Json = {}
    for one in served:
        where = "namespaces/{namespace}/" if one.namespaced else ""
        operation = {
            "parameters": [
                {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
            ],
            "x-kubernetes-group-version-kind": {
                "group": one.group,
                "version": one.version,
                "kind": one.kind,
            },
            "responses": {"200": {"description": "OK"}},
        }
        paths[f"/{one.root}/{where}{one.plural}/{{name}}"] = {"patch": operation, "put": operation}
    info = {"title": "accelbind API server stand-in", "version": "v1.36"}
    return {"openapi": "3.0.0", "info": info, "paths": paths}
