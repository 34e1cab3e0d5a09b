"""The resources that the stand-in serves: one table, to which custom resources can be added.

Everything generic (storage, lists, watches, patches, discovery) reads this table; what is special
about pods, nodes, namespaces and webhook configurations stands in modules of their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from simulator.apiserver import wire
from simulator.apiserver.wire import Json

DOMAIN_GROUP = "fpga.intel.com"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind and how it is served.

    Args:
        group: API group, empty for the core group.
        version: the one version that is served and stored.
        plural: its name in paths.
        kind: its name in objects.
        namespaced: whether its objects live in namespaces.
        custom: a custom resource: keys are written sorted, no strategic merge.
        schema: OpenAPI v3 schema that its objects must fit, for custom resources.
        subresources: those that are served, of `status`.
        short_names: what kubectl accepts instead of the plural.
        selectable: further fields that field selectors may name.
        counts_generations: whether a change outside metadata and status bumps the generation.
        empty: what a bookmark of the kind holds besides its metadata.
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
    counts_generations: bool = False
    empty: Json = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Group and plural: what names it in the table."""
        return self.group, self.plural

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def encode(self, item: Json) -> bytes:
        """An object as it is stored and sent."""
        return wire.encode(item, sort=self.custom)

    def path(self, namespace: str, name: str) -> str:
        """The object's place, as it stands in continue tokens."""
        return f"{namespace}/{name}" if self.namespaced else name


def _pattern(pattern: str) -> Json:
    return {"type": "string", "pattern": pattern}


def _spec_schema(required: Sequence[str], **properties: Json) -> Json:
    spec = {"type": "object", "required": list(required), "properties": properties}
    return {"type": "object", "required": ["spec"], "properties": {"spec": spec}}


_INTERFACE = _pattern("^[0-9a-f]{8,32}$")
FUNCTION_SCHEMA = _spec_schema(
    ("afuId", "interfaceId", "mode"),
    afuId=_pattern("^[0-9a-f]{8,40}$"),
    interfaceId=_INTERFACE,
    mode=_pattern("^(af|region)$"),
)
REGION_SCHEMA = _spec_schema(("interfaceId",), interfaceId=_INTERFACE)

PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    namespaced=True,
    subresources=frozenset({"status", "binding"}),
    short_names=("po",),
    selectable=frozenset({"spec.nodeName", "spec.schedulerName", "status.phase"}),
    counts_generations=True,
    empty={"spec": {"containers": None}, "status": {}},
)
NODES = Resource(
    "",
    "v1",
    "nodes",
    "Node",
    namespaced=False,
    subresources=frozenset({"status"}),
    short_names=("no",),
    selectable=frozenset({"spec.unschedulable"}),
    empty={"spec": {}, "status": {}},
)
NAMESPACES = Resource(
    "",
    "v1",
    "namespaces",
    "Namespace",
    namespaced=False,
    subresources=frozenset({"status"}),
    short_names=("ns",),
    selectable=frozenset({"status.phase"}),
    empty={"spec": {}, "status": {}},
)
EVENTS = Resource(
    "",
    "v1",
    "events",
    "Event",
    namespaced=True,
    short_names=("ev",),
    selectable=frozenset(
        {"reason", "type", "source"}
        | {
            f"involvedObject.{name}"
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")
        }
    ),
    empty={"involvedObject": {}, "source": {}},
)
SECRETS = Resource(
    "",
    "v1",
    "secrets",
    "Secret",
    namespaced=True,
    selectable=frozenset({"type"}),
)
FUNCTIONS = Resource(
    DOMAIN_GROUP,
    "v2",
    "acceleratorfunctions",
    "AcceleratorFunction",
    namespaced=True,
    custom=True,
    schema=FUNCTION_SCHEMA,
    short_names=("af",),
    counts_generations=True,
)
REGIONS = Resource(
    DOMAIN_GROUP,
    "v2",
    "fpgaregions",
    "FpgaRegion",
    namespaced=True,
    custom=True,
    schema=REGION_SCHEMA,
    short_names=("fpga",),
    counts_generations=True,
)
MUTATING = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
    counts_generations=True,
)
VALIDATING = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
    counts_generations=True,
)
DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    subresources=frozenset({"status"}),
    short_names=("crd", "crds"),
    counts_generations=True,
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

    def __init__(self, resources: Sequence[Resource] = BUILT_IN) -> None:
        self._by_key = {resource.key: resource for resource in resources}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_key.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource at a path, if it is served there."""
        resource = self._by_key.get((group, plural))
        return resource if resource is not None and resource.version == version else None

    def of_kind(self, kind: str) -> Resource | None:
        """The resource of a kind, whatever its group."""
        return next((one for one in self if one.kind == kind), None)

    def groups(self) -> list[str]:
        """All groups but the core one, in order."""
        return sorted({resource.group for resource in self if resource.group})

    def put(self, resource: Resource) -> None:
        """Adds a resource, or replaces the one of the same group and plural."""
        self._by_key[resource.key] = resource

    def drop(self, key: tuple[str, str]) -> None:
        """Takes a resource out."""
        self._by_key.pop(key, None)
