"""Metrics of devices, of cards and of what cards measure.

They are made at each scrape from what is known: a scrape reads no card and doesn't ask the kubelet,
and no series outlives its device or card.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.containers.holders import Holders
from services.devices.model import Card, Device
from services.devices.sensors import CardSensors
from services.kubelet.sockets import HEALTHY, UNHEALTHY
from services.node.state import NodeState

SEVERITIES: Final = ("correctable", "nonfatal", "fatal")
"""Of errors on the PCI bus, as the kernel's counters have them."""


class DeviceHolders(Protocol):
    """Knows which containers have devices."""

    @property
    def holders(self) -> Holders:
        """The containers of each device."""


class CardMeasurements(Protocol):
    """Knows what the cards measure."""

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards as the last scan found them."""

    @property
    def found(self) -> tuple[CardSensors, ...]:
        """The last values of their sensors and registers."""

    @property
    def hanging(self) -> int:
        """How many cards' sensors hang now."""


class DeviceCollector(Collector):
    """Devices: how many are in which state, and each with its state and its holders.

    Args:
        state: The node's state.
        holders: Knows which containers have devices.
    """

    def __init__(self, state: NodeState, holders: DeviceHolders) -> None:
        self._state = state
        self._holders = holders

    def collect(self) -> Iterator[Metric]:
        """The families, one after the other."""
        advertised = self._state.advertised
        found = [*advertised.not_offered, *advertised.devices()]
        yield _counts(found)
        # Two devices of one name without a resource have one series.
        each = {(device.resource, device.id): device for device in found}.values()
        yield _healthy(each)
        yield _reasons(each)
        yield _held((device.id for device in each), self._holders.holders)


def _counts(devices: Iterable[Device]) -> Metric:
    family = GaugeMetricFamily(
        "accelbind_devices",
        "Devices by resource, health and the first reason for it; no resource: can't be offered.",
        labels=("resource", "health", "reason"),
    )
    tally = Tally(
        (
            device.resource,
            HEALTHY if device.healthy else UNHEALTHY,
            device.reasons[0].reason if device.reasons else "",
        )
        for device in devices
    )
    for labels, count in sorted(tally.items()):
        family.add_metric(labels, count)
    return family


def _healthy(devices: Iterable[Device]) -> Metric:
    family = GaugeMetricFamily(
        "accelbind_device_healthy",
        "Whether a device is healthy: 1, or 0; no resource: it can't be offered.",
        labels=("device", "resource", "card", "numa_node"),
    )
    for device in devices:
        node = "" if device.numa_node is None else str(device.numa_node)
        family.add_metric((device.id, device.resource, device.card, node), int(device.healthy))
    return family


def _reasons(devices: Iterable[Device]) -> Metric:
    family = GaugeMetricFamily(
        "accelbind_device_reason",
        "Why a device isn't healthy, a series a reason; always 1.",
        labels=("device", "resource", "reason"),
    )
    for device in devices:
        for reason in dict.fromkeys(problem.reason for problem in device.reasons):
            family.add_metric((device.id, device.resource, reason), 1)
    return family


def _held(ids: Iterable[str], holders: Holders) -> Metric:
    """By the resource under which the kubelet allocated it, which may have changed since."""
    here = set(ids)
    family = GaugeMetricFamily(
        "accelbind_device_holder",
        "Which container has a device, as the kubelet tells; always 1. The labels of a pod are"
        " empty where only the container is known.",
        labels=("device", "resource", "namespace", "pod", "container"),
    )
    for (resource, key), found in sorted(holders.items()):
        if key in here:
            for each in found:
                labels = (key, resource, each.namespace, each.pod, each.container)
                family.add_metric(labels, 1)
    return family


class CardCollector(Collector):
    """Cards, and the last values of their sensors and registers.

    Args:
        measurements: Knows what the cards measure.
    """

    def __init__(self, measurements: CardMeasurements) -> None:
        self._measurements = measurements

    def collect(self) -> Iterator[Metric]:
        """The families, one after the other."""
        yield _cards(self._measurements.cards)
        sensors = self._measurements.found
        yield from _gauges(sensors)
        yield _registers(sensors)
        yield _bus_errors(sensors)


def _cards(cards: Iterable[Card]) -> Metric:
    family = GaugeMetricFamily(
        "accelbind_card_info",
        "Cards and where they are; always 1.",
        labels=("card", "driver", "pci_address", "numa_node"),
    )
    for card in cards:
        node = card.pci.numa_node if card.pci else None
        shown = "" if node is None else str(node)
        family.add_metric((card.name, card.driver, card.address, shown), 1)
    return family


def _gauges(sensors: Iterable[CardSensors]) -> Iterator[Metric]:
    temperatures = GaugeMetricFamily(
        "accelbind_card_temperature_celsius",
        "Temperature at a sensor of a card, in degrees Celsius.",
        labels=("card", "sensor"),
    )
    powers = GaugeMetricFamily(
        "accelbind_card_power_watts",
        "Power that a card draws at a sensor, in watts.",
        labels=("card", "sensor"),
    )
    for each in sensors:
        for family, gauges in ((temperatures, each.temperatures), (powers, each.powers)):
            for gauge in gauges:
                family.add_metric((each.card, gauge.label), gauge.value)
    yield temperatures
    yield powers


def _registers(sensors: Iterable[CardSensors]) -> Metric:
    family = GaugeMetricFamily(
        "accelbind_card_errors",
        "Value of an error register of a card's engine or port, a bit an error; 0 is good.",
        labels=("card", "part", "register"),
    )
    for each in sensors:
        for register in each.registers:
            family.add_metric((each.card, register.part, register.name), register.value)
    return family


def _bus_errors(sensors: Iterable[CardSensors]) -> Metric:
    family = CounterMetricFamily(
        "accelbind_pci_errors",
        "Errors on the PCI bus that a card's function has reported (AER), by severity.",
        labels=("card", "pci_address", "severity"),
    )
    for each in sensors:
        errors = each.bus_errors
        counts = (errors.correctable, errors.nonfatal, errors.fatal)
        for severity, count in zip(SEVERITIES, counts, strict=True):
            if count is not None:
                family.add_metric((each.card, each.address, severity), count)
    return family
