"""The metrics of a node's devices and cards: what is counted, and what a scrape shows."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.containers.holders import Holders
from services.devices.hardware.scan import Scanner
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.model import Card, Device
from services.devices.sensors import CardSensors
from services.kube.events import CREATED, DROPPED, MERGED, REFUSED, REPEATED, SUPERSEDED
from services.kubelet.values import HEALTHY, UNHEALTHY
from services.node.kept_files import Kept
from services.node.state import NodeState
from services.programming.error_registers import ClearResult

SEVERITIES: Final = ("correctable", "nonfatal", "fatal")
"""Of errors on the PCI bus, as the kernel's counters have them."""

_PROGRAMMING_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
_SCAN_BUCKETS = (0.001, 0.005, 0.015, 0.05, 0.2, 1.0, 5.0, 10.0)


class NodeMetrics:
    """Counts and measurements of a node, whatever kubelet API offers its devices."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.errors_cleared = new_counter(
            registry,
            "errors_cleared",
            "Error registers of ports that nobody has and that were to be cleared, by outcome"
            " (cleared, changed, busy, forbidden, failed, hung).",
            ("outcome",),
            known=ClearResult,
        )
        self.events = new_counter(
            registry,
            "events",
            "Kubernetes Events to be written, by outcome: created; merged with another one;"
            " repeated within ten minutes, so not written; superseded by something newer, dropped"
            " for want of space, refused by the API server.",
            ("outcome",),
            known=(CREATED, MERGED, REPEATED, SUPERSEDED, DROPPED, REFUSED),
        )
        self.files = Counter(
            "accelbind_files_restored",
            "Files and sockets of this process on the node that were found lost or changed, by kind"
            " and outcome (restored, failed).",
            ("kind", "outcome"),
            registry=registry,
        )
        for kind in Kept:
            self.files.labels(kind, "restored")
            self.files.labels(kind, "failed")
        self.programmings = new_counter(
            registry,
            "programmings",
            "Regions made ready for a container, by outcome: programmed, kept (the function was"
            " there), failed.",
            ("outcome",),
            known=("programmed", "kept", "failed"),
        )
        self.scan_seconds = Histogram(
            "accelbind_scan_seconds",
            "Seconds that reading all cards takes.",
            buckets=_SCAN_BUCKETS,
            registry=registry,
        )
        self.programming_seconds = Histogram(
            "accelbind_programming_seconds",
            "Seconds that programming a function into a region takes, until it is verified.",
            ("interface", "afu"),
            buckets=_PROGRAMMING_BUCKETS,
            registry=registry,
        )


def new_counter(
    registry: CollectorRegistry,
    name: str,
    text: str,
    labels: tuple[str, ...],
    known: Iterable[str] = (),
) -> Counter:
    """Create a counter; `known` are values of its only label that are shown from the start."""
    counter = Counter(f"accelbind_{name}", text, labels, registry=registry)
    for value in known:
        counter.labels(value)
    return counter


# Made anew at each scrape, so no series outlives its device.


@dataclass(eq=False)
class NodeCollector(Collector):
    """Cards, devices, their holders, and the last values of sensors."""

    state: NodeState
    scanner: Scanner
    sensors: SensorReader
    readings: tuple[CardSensors, ...] = ()

    async def read_sensors(self) -> None:
        """Read the sensors of the present cards, for the next `collect`."""
        inventory = self.state.ledger.inventory
        self.readings = await self.sensors.read(inventory.cards) if inventory else ()

    def collect(self) -> Iterator[Metric]:
        """The families, one after the other."""
        inventory = self.state.ledger.inventory
        yield from _of_cards(inventory.cards if inventory else (), self.readings)
        yield GaugeMetricFamily(
            "accelbind_hanging_reads",
            "Cards and class folders of sysfs whose reading hangs now.",
            value=len(self.scanner.hanging),
        )
        advertised = self.state.ledger.offer
        devices = [*advertised.not_offered, *advertised.devices()]
        yield from _of_devices(devices, self.state.ledger.holders)


def gauge(
    name: str, text: str, labels: tuple[str, ...], samples: Mapping[tuple[str, ...], float]
) -> Metric:
    """A gauge with the values that it has now, by the values of its labels."""
    family = GaugeMetricFamily(f"accelbind_{name}", text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family


def _of_devices(devices: Sequence[Device], holders: Holders) -> Iterator[Metric]:
    tally = Tally(
        (
            device.resource,
            HEALTHY if device.healthy else UNHEALTHY,
            device.reasons[0].code if device.reasons else "",
        )
        for device in devices
    )
    yield gauge(
        "devices",
        "Devices by resource, health and the first reason for it; no resource: can't be offered.",
        ("resource", "health", "reason"),
        dict(sorted(tally.items())),
    )
    yield gauge(
        "device_healthy",
        "Whether a device is healthy: 1, or 0; no resource: it can't be offered.",
        ("device", "resource", "card", "numa_node"),
        {
            (each.id, each.resource, each.card, _label_of(each.numa_node)): int(each.healthy)
            for each in devices
        },
    )
    yield gauge(
        "device_reason",
        "Why a device isn't healthy, a series a reason; always 1.",
        ("device", "resource", "reason"),
        {(each.id, each.resource, why.code): 1 for each in devices for why in each.reasons},
    )
    # By the resource under which the kubelet allocated it, which may have changed since.
    here = {each.id for each in devices}
    yield gauge(
        "device_holder",
        "Which container has a device, as the kubelet tells, or which claim; always 1. The labels"
        " of a pod are empty where only the container is known.",
        ("device", "resource", "holder_namespace", "holder_pod", "holder_container", "claim"),
        {
            (key, resource, each.namespace, each.pod, each.container, each.claim): 1
            for (resource, key), owners in sorted(holders.items())
            if key in here
            for each in owners
        },
    )


def _of_cards(cards: Iterable[Card], sensors: Sequence[CardSensors]) -> Iterator[Metric]:
    yield gauge(
        "card_info",
        "Cards and where they are; always 1.",
        ("card", "driver", "pci_address", "numa_node"),
        {
            (
                each.name,
                each.driver,
                each.address,
                _label_of(each.pci.numa_node if each.pci else None),
            ): 1
            for each in cards
        },
    )
    yield gauge(
        "card_temperature_celsius",
        "Temperature at a sensor of a card, in degrees Celsius.",
        ("card", "sensor"),
        {(each.card, at.label): at.value for each in sensors for at in each.temperatures},
    )
    yield gauge(
        "card_power_watts",
        "Power that a card draws at a sensor, in watts.",
        ("card", "sensor"),
        {(each.card, at.label): at.value for each in sensors for at in each.powers},
    )
    yield gauge(
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


def _label_of(value: int | None) -> str:
    return "" if value is None else str(value)
