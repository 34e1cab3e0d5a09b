"""The devices that nodes offer by DRA, as the resources that pods request.

A pod that requests a resource gets devices of the DeviceClass with that `extendedResourceName`. The
names of ours follow from the attributes of our devices, and from the classes that `accelbind dra
classes` prints for device types.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from accelbind.cluster import Json, part
from accelbind.device_classes import TYPE_CLASS
from plugin.dra.slices import COLLECTION, UNHEALTHY, read_attributes
from services.devices.dra import API_VERSION, CONTENT, DRIVER, FPGA
from services.names import DOMAIN, function_name, region_name

SLICES: Final = COLLECTION
CLASSES: Final = f"/apis/{API_VERSION}/deviceclasses"


@dataclass(frozen=True, slots=True)
class Published:
    """The devices that the nodes of a cluster offer by DRA."""

    by_node: Mapping[str, Mapping[str, int]]
    """Healthy devices of accelbind's driver by full resource name, of each node that it serves."""
    healthy: Mapping[str, int]
    """Number of healthy devices of each of these nodes, also of those that no class names."""
    classes: frozenset[str]
    """Full names of the resources that some DeviceClass has."""
    of_others: frozenset[str]
    """Those of classes that aren't accelbind's."""


def read_published(slices: Iterable[Json], classes: Iterable[Json]) -> Published:
    """Read ResourceSlices and DeviceClasses."""
    resources = {
        str(part(each, "metadata").get("name")): str(name)
        for each in classes
        if (name := part(each, "spec").get("extendedResourceName"))
    }
    by_node = newest_devices(slices)
    return Published(
        {node: _amounts(devices, resources) for node, devices in by_node.items()},
        {node: sum(map(is_healthy, devices)) for node, devices in by_node.items()},
        frozenset(resources.values()),
        frozenset(
            resource
            for name, resource in resources.items()
            if not (name.endswith(TYPE_CLASS) or resource.startswith(f"{DOMAIN}/"))
        ),
    )


def add_published(
    totals: MutableMapping[str, int], published: Published, prefixes: tuple[str, ...]
) -> None:
    """Add what nodes offer by DRA to totals by resource, as `add_advertised` does."""

    def add(resource: str, number: int) -> None:
        name = resource.partition("/")[2] if resource.startswith(prefixes) else resource
        totals[name] = totals.get(name, 0) + number

    for amounts in published.by_node.values():
        for resource, number in amounts.items():
            add(resource, number)
    for resource in published.of_others:  # how many devices another driver has for it is unknown
        add(resource, 1)


def newest_devices(slices: Iterable[Json]) -> dict[str, list[Json]]:
    """The devices of our driver by node, of the newest generation of its pool."""
    newest: dict[str, tuple[int, list[Json]]] = {}
    for each in slices:
        spec = part(each, "spec")
        node, generation = spec.get("nodeName"), part(spec, "pool").get("generation")
        if spec.get("driver") != DRIVER or not isinstance(node, str):
            continue
        number = generation if isinstance(generation, int) else 0
        known, devices = newest.get(node, (number, []))
        if number >= known:
            kept = devices if number == known else []
            newest[node] = number, [*kept, *(spec.get("devices") or ())]
    return {node: devices for node, (_, devices) in newest.items()}


def _amounts(devices: Iterable[Json], resources: Mapping[str, str]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for device in devices:
        for resource in resources_of(device, resources):
            amounts[resource] = amounts.get(resource, 0) + is_healthy(device)
    return amounts


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
