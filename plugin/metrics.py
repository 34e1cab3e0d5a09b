"""The metrics of the node's mode."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plugin.mode import ModeChoice
from services.node.metrics import gauge


@dataclass(eq=False)
class ModeCollector(Collector):
    """The node's mode."""

    choice: ModeChoice

    def collect(self) -> Iterator[Metric]:
        """The families, one after the other."""
        choice = self.choice
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
