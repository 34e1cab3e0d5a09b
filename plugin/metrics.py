"""The plugin's own metrics; `services.node.metrics` has those of devices and cards."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plugin.node_mode import NodeMode
from services.node.metrics import gauge, new_counter


class PluginMetrics:
    """What the plugin counts and measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.allocations = new_counter(
            registry,
            "allocations",
            "Containers given devices, by resource and outcome (given, refused).",
            ("resource", "outcome"),
        )
        self.registrations = new_counter(
            registry,
            "registrations",
            "Attempts to register a resource with the kubelet, by outcome (ok, failed).",
            ("resource", "outcome"),
        )
        self.watch_failures = new_counter(
            registry,
            "watch_failures",
            "Reads and watches of objects of the API server that failed, by kind; each is followed"
            " by another read after a pause.",
            ("kind",),
            known=("Node",),
        )
        self.prestarts = new_counter(
            registry,
            "prestart",
            "Containers about to start whose function was verified, by outcome (allowed, refused,"
            " unverifiable, failed).",
            ("outcome",),
            known=("allowed", "refused", "unverifiable", "failed"),
        )
        self.hook_calls = new_counter(
            registry,
            "hook_calls",
            "Calls of the OCI hook, by outcome (allowed, refused, failed; missing: a start was"
            " refused, since the runtime would not call the hook).",
            ("outcome",),
        )

    def forget(self, resource: str) -> None:
        """Delete the series of an ended resource."""
        # In mode af each function is a resource: programming would add series for ever.
        for outcome in ("given", "refused"):
            self.allocations.remove(resource, outcome)
        for outcome in ("ok", "failed"):
            self.registrations.remove(resource, outcome)


@dataclass(eq=False)
class ModeCollector(Collector):
    """The node's mode."""

    mode: NodeMode

    def collect(self) -> Iterator[Metric]:
        """The families, one after the other."""
        choice = self.mode.choice
        yield gauge(
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
