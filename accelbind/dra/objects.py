"""The DRA objects of a cluster: devices of slices as resources, classes, templates and claims.

A pod that requests a resource gets devices of the DeviceClass with that `extendedResourceName`. The
names of ours follow from the attributes of our devices, and from the classes that `accelbind dra
classes` prints for device types.

No class is evaluated: a class without devices is one whose selectors name drivers of which no
ResourceSlice has a device.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from accelbind.cluster import Json, part
from accelbind.dra.classes import TYPE_CLASS
from plugin.dra.slices import COLLECTION, UNHEALTHY, read_attributes
from services.devices.dra import API_VERSION, CONTENT, DRIVER, FPGA
from services.kube.client import ClusterClient, segment
from services.kube.lists import MAX_SURVEY, list_objects
from services.mappings.accelerator import CLAIM_TEMPLATE, DEVICE_CLASS
from services.mappings.index import MappingIndex
from services.names import DOMAIN, function_name, region_name
from services.process.text import listing, plain

SLICES: Final = COLLECTION
CLASSES: Final = f"/apis/{API_VERSION}/deviceclasses"
CLAIMS: Final = f"/apis/{API_VERSION}/resourceclaims"
TEMPLATE: Final = "ResourceClaimTemplate"
_UNCERTAIN: Final = re.compile(r"\|\||!|\?")
"""In an expression that need not be true of the driver that it names."""
_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class ClaimObjects:
    """What a cluster has for claims."""

    templates: dict[tuple[str, str], list[list[str]]] = field(default_factory=dict)
    """By namespace and name: for each request of the template, its class or those of its
    alternatives."""
    classes: dict[str, frozenset[str]] = field(default_factory=dict)
    """The drivers that the selectors of each class name."""
    drivers: frozenset[str] = frozenset()
    """The drivers with a device in some slice."""

    def problem(self, namespace: str, target: str) -> str:
        """Return why pods that get claims of a name's target stay Pending, or nothing.

        The target is a template of the pods' namespace or a class, as mappings name them.
        """
        if target.startswith(DEVICE_CLASS):
            return self._problem([[target.removeprefix(DEVICE_CLASS)]], "")
        template = target.removeprefix(CLAIM_TEMPLATE)
        requests = self.templates.get((namespace, template))
        if requests is None:
            return (
                f"{TEMPLATE} {plain(template)} does not exist in namespace {plain(namespace)}: its"
                " pods stay Pending until an administrator creates it there"
            )
        return self._problem(requests, f" of {TEMPLATE} {plain(namespace)}/{plain(template)}")

    def _problem(self, requests: list[list[str]], label: str) -> str:
        for classes in requests:
            # The scheduler needs the classes of all alternatives, and the devices of one.
            if missing := [plain(name) for name in classes if name not in self.classes]:
                return f"DeviceClass {missing[0]}{label} does not exist: its pods stay Pending"
            if not any(self._has_devices(self.classes[name]) for name in classes):
                named = listing([plain(name) for name in classes], last="or")
                drivers = sorted({plain(one) for name in classes for one in self.classes[name]})
                of = f" of driver {listing(drivers, last='or')}" if drivers else ""
                return (
                    f"no node publishes a device{of}, so DeviceClass {named}{label} has none: its"
                    " pods stay Pending"
                )
        return ""

    def _has_devices(self, drivers: frozenset[str]) -> bool:
        return not self.drivers.isdisjoint(drivers) if drivers else bool(self.drivers)


def read_claim_objects(
    templates: Iterable[Json], classes: Iterable[Json], slices: Iterable[Json]
) -> ClaimObjects:
    """Read the objects of a cluster; the templates name their namespaces."""
    return ClaimObjects(
        {
            (str(about.get("namespace")), str(about.get("name"))): [
                *map(classes_of, requests_of(each))
            ]
            for each in templates
            if (about := part(each, "metadata"))
        },
        {
            str(part(each, "metadata").get("name")): frozenset(
                driver
                for one in part(each, "spec").get("selectors") or ()
                if (text := str(part(one, "cel").get("expression")))
                if not _UNCERTAIN.search(text)
                for driver in _DRIVER.findall(text)
            )
            for each in classes
        },
        frozenset(
            str(spec.get("driver"))
            for each in slices
            if (spec := part(each, "spec")) and spec.get("devices")
        ),
    )


def names_claims(index: MappingIndex) -> bool:
    """Whether a name stands for claims."""
    return any(
        mapping.resolution.resource.startswith((CLAIM_TEMPLATE, DEVICE_CLASS))
        for namespace in index.namespaces
        for mapping in index.namespace(namespace).accelerators.by_name.values()
    )


def templates_path(namespace: str | None) -> str:
    """The path of the templates of a namespace or, with None, of the cluster."""
    within = f"/namespaces/{segment(namespace)}" if namespace else ""
    return f"/apis/{API_VERSION}{within}/resourceclaimtemplates"


async def list_claim_objects(
    client: ClusterClient, namespaces: Iterable[str | None], own: Iterable[Json]
) -> tuple[list[Json], ClaimObjects]:
    """List the templates of some namespaces, and all that claims of them and of `own` need.

    Raises:
        ClusterError: The API server doesn't answer, or doesn't allow it.
    """
    paths = [*map(templates_path, namespaces)]
    templates = [
        each
        for path in paths
        for each in await list_objects(client, path, dict[str, Any], most=MAX_SURVEY)
    ]
    classes, slices = [
        await list_objects(client, path, dict[str, Any], most=MAX_SURVEY)
        for path in (CLASSES, SLICES)
    ]
    return templates, read_claim_objects([*templates, *own], classes, slices)


def requests_of(template: Json) -> list[Json]:
    """The requests of a template's claims."""
    devices = part(template, "spec", "spec", "devices")
    return devices.get("requests") or []


def classes_of(request: Json) -> list[str]:
    """The class of a request, or of its alternatives."""
    exactly = request.get("exactly")
    wanted = [exactly] if exactly else request.get("firstAvailable") or ()
    return [str(each.get("deviceClassName")) for each in wanted]


@dataclass(frozen=True, slots=True)
class Published:
    """The devices that the nodes of a cluster offer by DRA."""

    amounts: Mapping[str, int]
    """Healthy devices of accelbind's driver by full resource name; 0 if none is healthy."""
    classes: frozenset[str]
    """Full names of the resources that some DeviceClass has."""
    of_others: frozenset[str]
    """Those of classes that aren't accelbind's."""


def read_published(slices: Iterable[Json], classes: Iterable[Json]) -> Published:
    """Read ResourceSlices and DeviceClasses."""
    resources, amounts = class_resources(classes), Counter[str]()
    for devices in newest_devices(slices).values():
        for device in devices:
            for resource in resources_of(device, resources):
                amounts[resource] += is_healthy(device)
    return Published(
        amounts,
        frozenset(resources.values()),
        frozenset(
            resource
            for name, resource in resources.items()
            if not (name.endswith(TYPE_CLASS) or resource.startswith(f"{DOMAIN}/"))
        ),
    )


def newest_specs(slices: Iterable[Json]) -> list[Json]:
    """The specs of the slices of the newest generation of each pool."""
    specs = [part(each, "spec") for each in slices]
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        newest[pool_of(spec)] = max(newest.get(pool_of(spec), 0), _generation(spec))
    return [spec for spec in specs if _generation(spec) == newest[pool_of(spec)]]


def pool_of(spec: Json) -> tuple[str, str]:
    """Driver and name of the pool of a slice."""
    return str(spec.get("driver")), str(part(spec, "pool").get("name"))


def _generation(spec: Json) -> int:
    return int(part(spec, "pool").get("generation") or 0)


def newest_devices(slices: Iterable[Json]) -> dict[str, list[Json]]:
    """The devices of our driver by node, of the newest generation of its pool."""
    by_node: dict[str, list[Json]] = {}
    for spec in newest_specs(slices):
        if spec.get("driver") == DRIVER and isinstance(node := spec.get("nodeName"), str):
            by_node.setdefault(node, []).extend(spec.get("devices") or ())
    return by_node


def class_resources(classes: Iterable[Json]) -> dict[str, str]:
    """The resource of each DeviceClass that has one."""
    return {
        str(part(each, "metadata").get("name")): str(name)
        for each in classes
        if (name := part(each, "spec").get("extendedResourceName"))
    }


def results_of(claim: Json) -> list[Json]:
    """The devices that a claim has."""
    return part(claim, "status", "allocation", "devices").get("results") or []


def is_healthy(device: Json) -> bool:
    """Whether a device has no taint of ours."""
    return not any(taint.get("key") == UNHEALTHY for taint in device.get("taints") or ())


def resources_of(device: Json, resources: Mapping[str, str]) -> Iterable[str]:
    """The names by which pods request a device."""
    attributes = read_attributes(device)
    kind, interface = attributes.get("type"), str(attributes.get("interfaceID") or "")
    if kind != FPGA:
        name = resources.get(f"{kind}{TYPE_CLASS}")
        return [name] if name else []
    if not interface:
        return []
    functions = [str(attributes[name]) for name in CONTENT if attributes.get(name)]
    names = [region_name(interface), *(function_name(interface, each) for each in functions)]
    return [f"{DOMAIN}/{name}" for name in names]
