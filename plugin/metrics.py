"""The plugin's metrics: what it counts, and what is read when they are scraped."""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plugin.device_metrics import (
    CardCollector,
    CardMeasurements,
    DeviceCollector,
    DeviceHolders,
)
from plugin.node_mode import NodeMode
from services.node.error_clearing import HUNG
from services.node.state import NodeState
from services.programming.error_registers import ClearResult

EVENT_OUTCOMES: Final = ("created", "counted", "superseded", "dropped", "refused")
_PROGRAMMING_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
_SCAN_BUCKETS = (0.001, 0.005, 0.015, 0.05, 0.2, 1.0, 5.0, 10.0)


class PluginMetrics:
    """The plugin's metrics.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._count_kubelet(registry)
        self._measure_cards(registry)
        self._count_starts(registry)
        self._count_api_server(registry)

    def _count_kubelet(self, registry: CollectorRegistry) -> None:
        self._allocations = Counter(
            "accelbind_allocations",
            "Containers given devices, by resource and outcome (given, refused).",
            ("resource", "outcome"),
            registry=registry,
        )
        self._registrations = Counter(
            "accelbind_registrations",
            "Attempts to register a resource with the kubelet, by outcome (ok, failed).",
            ("resource", "outcome"),
            registry=registry,
        )

    def _measure_cards(self, registry: CollectorRegistry) -> None:
        self._scan = Histogram(
            "accelbind_scan_seconds",
            "Seconds that reading all cards takes.",
            buckets=_SCAN_BUCKETS,
            registry=registry,
        )
        self._hanging = Gauge(
            "accelbind_hanging_reads",
            "Cards and class folders of sysfs whose reading hangs now.",
            registry=registry,
        )
        self._hanging_sensors = Gauge(
            "accelbind_hanging_sensors",
            "Cards whose sensors hang now.",
            registry=registry,
        )
        self._cleared = Counter(
            "accelbind_errors_cleared",
            "Error registers of ports that nobody has and that were to be cleared, by outcome"
            " (cleared, changed, forbidden, failed, hung).",
            ("outcome",),
            registry=registry,
        )
        for outcome in (*ClearResult, HUNG):
            self._cleared.labels(outcome)

    def _count_starts(self, registry: CollectorRegistry) -> None:
        self._prestart = Counter(
            "accelbind_prestart",
            "Containers about to start whose function was verified, by outcome (allowed, refused,"
            " unverifiable, failed).",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("allowed", "refused", "unverifiable", "failed"):
            self._prestart.labels(outcome)
        self._programming = Histogram(
            "accelbind_programming_seconds",
            "Seconds that programming a function into a region takes, until it is verified.",
            ("interface", "afu"),
            buckets=_PROGRAMMING_BUCKETS,
            registry=registry,
        )
        self._programmings = Counter(
            "accelbind_programmings",
            "Regions made ready for a container, by outcome: programmed, kept (the function was"
            " there), failed.",
            ("outcome",),
            registry=registry,
        )
        self._hooks = Counter(
            "accelbind_hook_calls",
            "Calls of the OCI hook, by outcome (allowed, refused, failed; missing: a start was"
            " refused, since the runtime did not call the hook, or would not find it).",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("programmed", "kept", "failed"):
            self._programmings.labels(outcome)

    def _count_api_server(self, registry: CollectorRegistry) -> None:
        self._events = Counter(
            "accelbind_events",
            "Kubernetes Events to be written, by outcome: created; counted in the Event that was"
            " there; superseded by something newer, dropped for want of space, refused by the API"
            " server.",
            ("outcome",),
            registry=registry,
        )
        for outcome in EVENT_OUTCOMES:
            self._events.labels(outcome)
        self._watch_failures = Counter(
            "accelbind_watch_failures",
            "Reads and watches of objects of the API server that failed, by kind; each is followed"
            " by another read after a pause.",
            ("kind",),
            registry=registry,
        )
        self._watch_failures.labels("Node")

    def show_node(
        self,
        state: NodeState,
        holders: DeviceHolders,
        measurements: CardMeasurements,
        hanging_reads: Callable[[], int],
    ) -> None:
        """Shows devices and cards, and how many reads hang.

        Args:
            state: The node's state.
            holders: Knows which containers have devices.
            measurements: Knows what the cards measure.
            hanging_reads: Returns how many reads of scans hang now.
        """
        self._registry.register(DeviceCollector(state, holders))
        self._registry.register(CardCollector(measurements))
        self._hanging.set_function(hanging_reads)
        self._hanging_sensors.set_function(lambda: measurements.hanging)

    def show_mode(self, mode: NodeMode) -> None:
        """Shows the node's mode."""
        self._registry.register(_ModeCollector(mode))

    def show(self, collector: Collector) -> None:
        """Shows what a collector finds at each scrape."""
        self._registry.register(collector)

    def count_event(self, outcome: str) -> None:
        """One Event was written, or wasn't."""
        self._events.labels(outcome).inc()

    def count_failed_watch(self) -> None:
        """A read or watch of the node failed."""
        self._watch_failures.labels("Node").inc()

    def allocated(self, resource: str, outcome: str) -> None:
        """One container's `Allocate` was answered."""
        self._allocations.labels(resource, outcome).inc()

    def registered(self, resource: str, outcome: str) -> None:
        """One attempt to register ended."""
        self._registrations.labels(resource, outcome).inc()

    def forget(self, resource: str) -> None:
        """A resource has ended: its series go, since functions of cards may change for ever."""
        for outcome in ("given", "refused"):
            self._allocations.remove(resource, outcome)
        for outcome in ("ok", "failed"):
            self._registrations.remove(resource, outcome)

    def scanned(self, seconds: float) -> None:
        """One scan ended."""
        self._scan.observe(seconds)

    def prestarted(self, outcome: str) -> None:
        """One `PreStartContainer` was answered."""
        self._prestart.labels(outcome).inc()

    def programmed(self, interface_id: str, function: str, seconds: float) -> None:
        """A function was programmed into a region."""
        self._programming.labels(interface_id, function).observe(seconds)

    def hooked(self, outcome: str) -> None:
        """A call of the OCI hook was answered."""
        self._hooks.labels(outcome).inc()

    def hook_missing(self) -> None:
        """A start was refused because the OCI hook was or would not be called."""
        self.hooked("missing")

    def programming_ended(self, outcome: str) -> None:
        """A region was made ready for a container, or couldn't be."""
        self._programmings.labels(outcome).inc()

    def errors_cleared(self, outcome: str) -> None:
        """The errors of one port were cleared, or couldn't be."""
        self._cleared.labels(outcome).inc()


class _ModeCollector(Collector):
    def __init__(self, mode: NodeMode) -> None:
        self._mode = mode

    def collect(self) -> Iterator[Metric]:
        choice = self._mode.choice
        mode = GaugeMetricFamily(
            "accelbind_node_mode",
            "The node's mode, and who says so (annotation, flag, or last: what was served last"
            " counts until the API server answers); always 1.",
            labels=("mode", "source"),
        )
        mode.add_metric((choice.mode.value, choice.source), 1)
        yield mode
        yield GaugeMetricFamily(
            "accelbind_node_mode_annotation_invalid",
            "Whether the node's annotation names no mode, so that the one before is kept: 1 or 0.",
            value=bool(choice.error),
        )
