"""The resources that the stand-in serves: one table, to which custom resources can be added.

Everything generic (storage, lists, watches, patches, discovery) reads this table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.apiserver.wire import Json, encode


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind and how it is served.

    Args:
        group: API group, empty for the core group.
        version: the one version that is served and stored.
        custom: a custom resource: its keys are written sorted.
        schema: OpenAPI v3 schema that its objects must fit, for custom resources.
        selectable: further fields that field selectors may name.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    custom: bool = False
    schema: Json | None = None
    subresources: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()
    selectable: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[str, str]:
        """Group and plural: what names it in the table."""
        return self.group, self.plural

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural with its group, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def encode(self, item: Json) -> bytes:
        """An object as it is stored and sent."""
        return encode(item, sort=self.custom)

    def path(self, namespace: str, name: str) -> str:
        """The object's place, as it stands in continue tokens."""
        return f"{namespace}/{name}" if self.namespaced else name

    def path_of(self, item: Json) -> str:
        """The place of an object."""
        return self.path(item["metadata"].get("namespace", ""), item["metadata"]["name"])


PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    namespaced=True,
    subresources=frozenset({"status"}),
    short_names=("po",),
    selectable=frozenset({"spec.nodeName", "status.phase"}),
)
NODES = Resource(
    "",
    "v1",
    "nodes",
    "Node",
    namespaced=False,
    subresources=frozenset({"status"}),
    short_names=("no",),
)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",))
EVENTS = Resource(
    "",
    "v1",
    "events",
    "Event",
    namespaced=True,
    short_names=("ev",),
    selectable=frozenset({"reason", "type", "involvedObject.kind", "involvedObject.name"}),
)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
_DOMAIN = "fpga.intel.com"
FUNCTIONS = Resource(
    _DOMAIN,
    "v2",
    "acceleratorfunctions",
    "AcceleratorFunction",
    namespaced=True,
    custom=True,
    short_names=("af",),
)
REGIONS = Resource(
    _DOMAIN, "v2", "fpgaregions", "FpgaRegion", namespaced=True, custom=True, short_names=("fpga",)
)
_REGISTRATION = "admissionregistration.k8s.io"
MUTATING = Resource(
    _REGISTRATION,
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING = Resource(
    _REGISTRATION,
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    subresources=frozenset({"status"}),
    short_names=("crd", "crds"),
)
BUILT_IN = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    SECRETS,
    FUNCTIONS,
    REGIONS,
    MUTATING,
    VALIDATING,
    DEFINITIONS,
)


class ResourceTable:
    """What is served, by group and plural. Custom resource definitions add to it and take away."""

    def __init__(self) -> None:
        self._by_key = {resource.key: resource for resource in BUILT_IN}

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_key.values()))

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource at a path, if it is served there."""
        resource = self._by_key.get((group, plural))
        return resource if resource is not None and resource.version == version else None

    def of_kind(self, kind: str) -> Resource:
        """The resource of a kind, whatever its group (KeyError for an unknown one)."""
        for resource in self:
            if resource.kind == kind:
                return resource
        raise KeyError(kind)

    def put(self, resource: Resource) -> None:
        """Adds a resource, or replaces the one of the same group and plural."""
        self._by_key[resource.key] = resource

    def drop(self, resource: Resource) -> None:
        """Takes a resource out."""
        self._by_key.pop(resource.key, None)


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: an object or, without a name, a collection.

    Args:
        namespace: empty for cluster-wide kinds and for lists over all namespaces.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """The object's place in the store."""
        return self.resource.path(self.namespace, self.name)

    @property
    def prefix(self) -> str:
        """What the paths of the collection begin with."""
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
