"""What a name stands for in a cluster: where it is offered, and how much of it is free.

Resources of device plugins are counted by what nodes have and pods request, devices of DRA by what
claims have. A class is not evaluated: its devices are at most those of the drivers that it names,
or all if it names none.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from accelbind.cluster import ENDED, Json, Reader, number_of, part
from accelbind.dra.objects import (
    CLAIMS,
    CLASSES,
    SLICES,
    ClaimObjects,
    class_resources,
    is_healthy,
    newest_specs,
    pool_of,
    read_claim_objects,
    resources_of,
    results_of,
    templates_path,
)
from accelbind.mappings import resource_of
from plugin.dra.slices import MULTIPLE
from services.devices.dra import DRIVER, SHARES
from services.kube.client import ClusterClient
from services.mappings.accelerator import CLAIM_TEMPLATE, DEVICE_CLASS, Effects
from services.mappings.model import Mapping

T = TypeVar("T")
_Device: TypeAlias = tuple[str, str, str]
"""Driver, pool and name."""
_ANY = 1 << 30
"""More units than a node has, and more shares than a device has."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Where a name is offered, and how much of it is free."""

    nodes: tuple[str, ...] | None = None
    """None if that is unknown."""
    free: int | None = None
    """Units that a container could get now; None if that is unknown."""
    is_bound: bool = False
    """Whether it may be fewer: selectors of classes are not evaluated."""


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    labels: Json
    amounts: Json
    """What the kubelet counts as allocatable."""
    accepts_pods: bool


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A resource, class or template of claims that a name stands for."""

    key: str
    amount: int
    devices: dict[_Device, tuple[str, Json]]
    """Those of DRA that it may be."""
    is_bound: bool
    """Whether it need not be each of them."""
    is_counted: bool
    """Whether a device plugin may have it."""
    is_per_unit: bool = True
    """Or once for a container."""

    def devices_on(self, node: _Node) -> set[_Device]:
        """Its devices on a node."""
        return {each for each, (place, _) in self.devices.items() if place == node.name}

    def counted_on(self, node: _Node) -> int:
        """What the kubelet of a node counts."""
        return number_of(node.amounts.get(self.key)) if self.is_counted else 0

    @property
    def is_countable(self) -> bool:
        """Whether no driver but ours lets several claims have parts of one device."""
        of_others = (at[1] for each, at in self.devices.items() if each[0] != DRIVER)
        return not any(device.get(MULTIPLE) for device in of_others)


@dataclass(slots=True)
class Offers:
    """What nodes offer, and what is in use."""

    nodes: list[_Node] | None = None
    devices: dict[_Device, tuple[str, Json]] | None = None
    """The healthy devices of DRA, each with its node."""
    used: Counter[tuple[str, str]] | None = None
    """What pods request, by node and resource."""
    allocated: Counter[_Device] | None = None
    """The shares of each device that claims have; of a whole device more than it has."""
    classes: dict[str, str] = field(default_factory=dict)
    """The resource of each DeviceClass that has one."""
    objects: ClaimObjects = field(default_factory=ClaimObjects)
    missing: list[str] = field(default_factory=list)
    """What may not be listed."""

    def of(self, mapping: Mapping, namespace: str, domain: str) -> Offer:
        """Where pods of a namespace get what a mapping stands for, in an FPGA's `domain`."""
        to = mapping.resolution
        effects = to.effects or Effects()
        wanted = [self._wanted(resource_of(mapping, domain), to.count, namespace)]
        wanted += [
            replace(
                self._wanted(each.resource, each.count, namespace), is_per_unit=each.per == "Unit"
            )
            for each in effects.also
        ]
        if self.nodes is None or (self.devices is None and not all(x.is_counted for x in wanted)):
            return Offer()
        if any(not place for one in wanted for place, _ in one.devices.values()):
            return Offer()  # several nodes can reach that device
        chosen = [
            each
            for each in self.nodes
            if all(each.labels.get(name) == value for name, value in effects.node_selector)
            and all(one.devices_on(each) or one.counted_on(each) for one in wanted)
        ]
        names = tuple(sorted(each.name for each in chosen))
        is_counted = any(one.counted_on(each) for one in wanted for each in chosen)
        is_of_dra = any(one.devices for one in wanted)
        if (is_counted and self.used is None) or (is_of_dra and self.allocated is None):
            return Offer(names)
        if not all(one.is_countable for one in wanted):
            return Offer(names)
        free = 0
        for each in chosen:
            units = min(self._units(each, one) for one in wanted)
            free += units if each.accepts_pods else 0
        return Offer(names, free, any(one.is_bound for one in wanted))

    def _wanted(self, key: str, amount: int, namespace: str) -> _Wanted:
        known = self.devices or {}
        ours = {
            each: at
            for each, at in known.items()
            if each[0] == DRIVER and key in resources_of(at[1], self.classes)
        }
        is_counted = not key.startswith((CLAIM_TEMPLATE, DEVICE_CLASS))
        if key.startswith(CLAIM_TEMPLATE):
            requests = self.objects.templates.get((namespace, key.removeprefix(CLAIM_TEMPLATE)), [])
            classes = [name for names in requests for name in names]
        elif key.startswith(DEVICE_CLASS):
            classes = [key.removeprefix(DEVICE_CLASS)]
        else:
            classes = [name for name, resource in self.classes.items() if resource == key]
        if ours or (is_counted and not classes):
            return _Wanted(key, amount, ours, is_bound=False, is_counted=is_counted)
        named = self.objects.classes
        drivers = [named[name] for name in classes if name in named]
        found = {
            each: at
            for each, at in known.items()
            if any(not some or each[0] in some for some in drivers)
        }
        return _Wanted(key, amount, found, is_bound=True, is_counted=is_counted)

    def _units(self, node: _Node, wanted: _Wanted) -> int:
        """For how many units of the name a node has enough of a resource left."""
        used = self.allocated or Counter()
        if on_node := wanted.devices_on(node):  # what the kubelet still counts, a plugin has left
            shares = [_shares_of(wanted.devices[each][1]) - used[each] for each in on_node]
            left = [each for each in shares if each > 0]
            units = sum(left) // wanted.amount
            if not wanted.is_bound:  # each unit gets distinct devices
                while sum(min(each, units) for each in left) < units * wanted.amount:
                    units -= 1
        else:
            counted = wanted.counted_on(node) - (self.used or Counter())[node.name, wanted.key]
            units = max(0, counted) // wanted.amount
        return units if wanted.is_per_unit or not units else _ANY


async def read_offers(client: ClusterClient, namespace: str) -> Offers:
    """Read what nodes offer, and what names of a namespace may stand for.

    Raises:
        ClusterError: The API server does not answer.
    """
    reader = Reader(client)
    offers = Offers(missing=reader.problems)
    offers.nodes = await reader.listed("/api/v1/nodes", _node, note="nodes")
    slices = await reader.listed(SLICES, dict, note="ResourceSlices")
    classes = await reader.listed(CLASSES, dict, note="DeviceClasses")
    what = f"ResourceClaimTemplates of namespace {namespace}"
    templates = await reader.listed(templates_path(namespace), dict, note=what)
    requested = await reader.listed("/api/v1/pods", _requested, note="pods of all namespaces")
    what = "ResourceClaims of all namespaces"
    claims = await reader.listed(CLAIMS, _allocated, note=what)
    if slices is not None and classes is not None:
        offers.devices = _devices(slices)
        offers.objects = read_claim_objects(templates or (), classes, slices)
        offers.classes = class_resources(classes)
    if requested is not None:
        offers.used = Counter()
        for amounts in requested:
            offers.used.update(amounts)
    if claims is not None:
        offers.allocated = Counter()
        for shares in claims:
            offers.allocated.update(shares)
    return offers


def _node(item: Json) -> _Node:
    amounts = part(item, "status", "allocatable")
    extended = {key: each for key, each in amounts.items() if "/" in key}
    name, labels = str(item["metadata"]["name"]), part(item, "metadata", "labels")
    return _Node(name, labels, extended, not part(item, "spec").get("unschedulable"))


def _devices(slices: Iterable[Json]) -> dict[_Device, tuple[str, Json]]:
    """The healthy devices of the newest generation of each pool."""
    return {
        (*pool_of(spec), str(device.get("name"))): (str(spec.get("nodeName") or ""), device)
        for spec in newest_specs(slices)
        for device in spec.get("devices") or ()
        if is_healthy(device)
    }


def _shares_of(device: Json) -> int:
    if not device.get(MULTIPLE):
        return 1
    return number_of(part(device, "capacity", SHARES).get("value"))


def _allocated(claim: Json) -> Counter[_Device]:
    """The shares that a claim has, also of a device whose shares did not exist yet."""
    shares: Counter[_Device] = Counter()
    for each in results_of(claim):
        if each.get("adminAccess"):  # it only watches
            continue
        consumed = each.get("consumedCapacity") or {}
        amount = number_of(consumed.get(SHARES, "1")) if each.get("shareID") else _ANY
        shares[str(each.get("driver")), str(each.get("pool")), str(each.get("device"))] += amount
    return shares


def _requested(pod: Json) -> Counter[tuple[str, str]] | None:
    """What a pod on a node holds of extended resources, as the scheduler counts it.

    https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
    """
    spec, phase = part(pod, "spec"), part(pod, "status").get("phase")
    node = spec.get("nodeName")
    if not node or phase in ENDED:
        return None
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        limits = _limits(container)
        if container.get("restartPolicy") == "Always":
            sidecars.update(limits)
            limits = Counter()
        peak |= sidecars + limits
    running = sum(map(_limits, spec.get("containers") or ()), sidecars)
    return Counter({(str(node), key): units for key, units in (running | peak).items()})


def _limits(container: Json) -> Counter[str]:
    limits = part(container, "resources", "limits")
    return Counter({key: number_of(units) for key, units in limits.items() if "/" in key})
