"""The plugin's metrics: what it counts, and what a scrape shows of its node.

What is shown of the node is made at each scrape from what is known: a scrape reads no card and
doesn't ask the kubelet, and no series outlives its device or card.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plugin.node_mode import NodeMode
from services.containers.holder_source import HolderSource
from services.devices.hardware.scan import Scanner
from services.devices.model import Card, Device
from services.devices.sensors import CardSensors
from services.kubelet.sockets import HEALTHY, UNHEALTHY
from services.node.discovery import NodeState
from services.node.error_clearing import HUNG
from services.node.permissions import PermissionCheck
from services.node.sensing import Sensing
from services.programming.error_registers import ClearResult

EVENT_OUTCOMES: Final = ("created", "repeated", "superseded", "dropped", "refused")
SEVERITIES: Final = ("correctable", "nonfatal", "fatal")
"""Of errors on the PCI bus, as the kernel's counters have them."""

_PROGRAMMING_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
_SCAN_BUCKETS = (0.001, 0.005, 0.015, 0.05, 0.2, 1.0, 5.0, 10.0)


class PluginMetrics:
    """What the plugin counts and measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._count_node()
        self._count_starts()

    def _count_node(self) -> None:
        self.allocations = self._counter(
            "allocations",
            "Containers given devices, by resource and outcome (given, refused).",
            ("resource", "outcome"),
        )
        self.registrations = self._counter(
            "registrations",
            "Attempts to register a resource with the kubelet, by outcome (ok, failed).",
            ("resource", "outcome"),
        )
        self.errors_cleared = self._counter(
            "errors_cleared",
            "Error registers of ports that nobody has and that were to be cleared, by outcome"
            " (cleared, changed, forbidden, failed, hung).",
            ("outcome",),
            known=(*ClearResult, HUNG),
        )
        self.events = self._counter(
            "events",
            "Kubernetes Events to be written, by outcome: created; repeated within ten minutes, so"
            " not written; superseded by something newer, dropped for want of space, refused by the"
            " API server.",
            ("outcome",),
            known=EVENT_OUTCOMES,
        )
        self.watch_failures = self._counter(
            "watch_failures",
            "Reads and watches of objects of the API server that failed, by kind; each is followed"
            " by another read after a pause.",
            ("kind",),
            known=("Node",),
        )
        self.scan_seconds = Histogram(
            "accelbind_scan_seconds",
            "Seconds that reading all cards takes.",
            buckets=_SCAN_BUCKETS,
            registry=self._registry,
        )

    def _count_starts(self) -> None:
        self.prestarts = self._counter(
            "prestart",
            "Containers about to start whose function was verified, by outcome (allowed, refused,"
            " unverifiable, failed).",
            ("outcome",),
            known=("allowed", "refused", "unverifiable", "failed"),
        )
        self.programmings = self._counter(
            "programmings",
            "Regions made ready for a container, by outcome: programmed, kept (the function was"
            " there), failed.",
            ("outcome",),
            known=("programmed", "kept", "failed"),
        )
        self.hook_calls = self._counter(
            "hook_calls",
            "Calls of the OCI hook, by outcome (allowed, refused, failed; missing: a start was"
            " refused, since the runtime did not call the hook, or would not find it).",
            ("outcome",),
        )
        self.programming_seconds = Histogram(
            "accelbind_programming_seconds",
            "Seconds that programming a function into a region takes, until it is verified.",
            ("interface", "afu"),
            buckets=_PROGRAMMING_BUCKETS,
            registry=self._registry,
        )

    def _counter(
        self, name: str, text: str, labels: tuple[str, ...], known: Iterable[str] = ()
    ) -> Counter:
        made = Counter(f"accelbind_{name}", text, labels, registry=self._registry)
        for value in known:
            made.labels(value)
        return made

    def forget(self, resource: str) -> None:
        """Delete the series of an ended resource.

        Reprogramming would otherwise keep adding series.
        """
        for outcome in ("given", "refused"):
            self.allocations.remove(resource, outcome)
        for outcome in ("ok", "failed"):
            self.registrations.remove(resource, outcome)


@dataclass(eq=False)
class NodeCollector(Collector):
    """What is known of the node: its mode, devices and their holders, cards and their sensors."""

    state: NodeState
    mode: NodeMode
    scanner: Scanner
    holders: HolderSource
    sensing: Sensing
    permissions: PermissionCheck

    def collect(self) -> Iterator[Metric]:
        """The families, one after the other."""
        advertised, inventory = self.state.advertised, self.state.inventory
        yield from _of_mode(self.mode)
        yield from _of_devices([*advertised.not_offered, *advertised.devices()], self.holders)
        yield from _of_cards(inventory.cards if inventory else (), self.sensing.found)
        yield GaugeMetricFamily(
            "accelbind_hanging_reads",
            "Cards and class folders of sysfs whose reading hangs now.",
            value=len(self.scanner.hanging),
        )
        yield GaugeMetricFamily(
            "accelbind_hanging_sensors",
            "Cards whose sensors hang now.",
            value=self.sensing.hanging,
        )
        yield _gauge(
            "permission_missing",
            "Permissions that the plugin needed on its node and hadn't when it started; always 1.",
            ("path", "permission"),
            {(each.path, each.permission): 1 for each in self.permissions.missing},
        )


def _gauge(
    name: str, text: str, labels: tuple[str, ...], samples: Mapping[tuple[str, ...], float]
) -> Metric:
    family = GaugeMetricFamily(f"accelbind_{name}", text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family


def _of_mode(mode: NodeMode) -> Iterator[Metric]:
    choice = mode.choice
    yield _gauge(
        "node_mode",
        "The node's mode, and who says so (annotation, flag, or last: what was served last"
        " counts until the API server answers); always 1.",
        ("mode", "source"),
        {(choice.mode.value, choice.source): 1},
    )
    yield GaugeMetricFamily(
        "accelbind_node_mode_annotation_invalid",
        "Whether the node's annotation names no mode, so that the one before is kept: 1 or 0.",
        value=bool(choice.error),
    )


def _of_devices(devices: Iterable[Device], holders: HolderSource) -> Iterator[Metric]:
    devices = list(devices)
    tally = Tally(
        (
            device.resource,
            HEALTHY if device.healthy else UNHEALTHY,
            device.reasons[0].reason if device.reasons else "",
        )
        for device in devices
    )
    yield _gauge(
        "devices",
        "Devices by resource, health and the first reason for it; no resource: can't be offered.",
        ("resource", "health", "reason"),
        dict(sorted(tally.items())),
    )
    yield _gauge(
        "device_healthy",
        "Whether a device is healthy: 1, or 0; no resource: it can't be offered.",
        ("device", "resource", "card", "numa_node"),
        {
            (each.id, each.resource, each.card, _number(each.numa_node)): int(each.healthy)
            for each in devices
        },
    )
    yield _gauge(
        "device_reason",
        "Why a device isn't healthy, a series a reason; always 1.",
        ("device", "resource", "reason"),
        {(each.id, each.resource, why.reason): 1 for each in devices for why in each.reasons},
    )
    # By the resource under which the kubelet allocated it, which may have changed since.
    here = {each.id for each in devices}
    yield _gauge(
        "device_holder",
        "Which container has a device, as the kubelet tells; always 1. The labels of a pod are"
        " empty where only the container is known.",
        ("device", "resource", "namespace", "pod", "container"),
        {
            (key, resource, each.namespace, each.pod, each.container): 1
            for (resource, key), found in sorted(holders.holders.items())
            if key in here
            for each in found
        },
    )


def _of_cards(cards: Iterable[Card], sensors: Iterable[CardSensors]) -> Iterator[Metric]:
    sensors = list(sensors)
    yield _gauge(
        "card_info",
        "Cards and where they are; always 1.",
        ("card", "driver", "pci_address", "numa_node"),
        {
            (
                each.name,
                each.driver,
                each.address,
                _number(each.pci.numa_node if each.pci else None),
            ): 1
            for each in cards
        },
    )
    yield _gauge(
        "card_temperature_celsius",
        "Temperature at a sensor of a card, in degrees Celsius.",
        ("card", "sensor"),
        {(each.card, at.label): at.value for each in sensors for at in each.temperatures},
    )
    yield _gauge(
        "card_power_watts",
        "Power that a card draws at a sensor, in watts.",
        ("card", "sensor"),
        {(each.card, at.label): at.value for each in sensors for at in each.powers},
    )
    yield _gauge(
        "card_errors",
        "Value of an error register of a card's engine or port, a bit an error; 0 is good.",
        ("card", "part", "register"),
        {(each.card, at.part, at.name): at.value for each in sensors for at in each.registers},
    )
    bus = CounterMetricFamily(
        "accelbind_pci_errors",
        "Errors on the PCI bus that a card's function has reported (AER), by severity.",
        labels=("card", "pci_address", "severity"),
    )
    for each in sensors:
        errors = each.bus_errors
        counts = (errors.correctable, errors.nonfatal, errors.fatal)
        for severity, count in zip(SEVERITIES, counts, strict=True):
            if count is not None:
                bus.add_metric((each.card, each.address, severity), count)
    yield bus


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
