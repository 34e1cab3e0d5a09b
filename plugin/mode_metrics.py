"""What can be seen of the node's mode, and of what is told to the cluster."""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plugin.mode import Choice

OUTCOMES: Final = ("created", "counted", "superseded", "dropped", "refused")


class ModeMetrics:
    """Metrics of the mode and of Events.

    Args:
        registry: Where they are registered.
        choice: Gives what counts now.
    """

    def __init__(self, registry: CollectorRegistry, choice: Callable[[], Choice]) -> None:
        registry.register(_Mode(choice))
        self._events = Counter(
            "accelbind_events",
            "Kubernetes Events to be written, by outcome: created; counted in the Event that was"
            " there; superseded by something newer, dropped for want of space, refused by the API"
            " server.",
            ("outcome",),
            registry=registry,
        )
        for outcome in OUTCOMES:
            self._events.labels(outcome)

        self._watch_failures = Counter(
            "accelbind_watch_failures",
            "Reads and watches of objects of the API server that failed, by kind; each is followed"
            " by another read after a pause.",
            ("kind",),
            registry=registry,
        )
        self._watch_failures.labels("Node")

    def watch_failed(self) -> None:
        """A read or watch of the node failed."""
        self._watch_failures.labels("Node").inc()

    def event(self, outcome: str) -> None:
        """One Event came to something."""
        self._events.labels(outcome).inc()


class _Mode(Collector):
    def __init__(self, choice: Callable[[], Choice]) -> None:
        self._choice = choice

    def collect(self) -> Iterator[Metric]:
        choice = self._choice()
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
            value=bool(choice.trouble),
        )
