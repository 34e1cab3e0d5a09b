"""The webhook's metrics, cheap enough to update for every request.

Only the event loop changes these plain numbers; a scrape turns them into metric families.
prometheus_client's own counters look up labels and take a lock each time.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SECONDS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5)
BYTES: Final = (2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072, 524_288, 1_048_576, 3_145_728)


class Histogram:
    """A histogram; the upper bounds of its buckets ascend, and `+Inf` is added."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        """Return the metric family; each bucket includes those before it."""
        total, buckets = 0, []
        bounds = [*map(str, self._bounds), "+Inf"]
        for bound, count in zip(bounds, self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=self._sum)


@dataclass(slots=True)
class AdmissionMetrics:
    """Counts of all requests since the start."""

    requests: dict[tuple[str, str, str], int] = field(default_factory=dict)
    seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    sizes: Histogram = field(default_factory=lambda: Histogram(BYTES))

    def count(self, endpoint: str, outcome: str, reason: str) -> None:
        """Count a request; no label value comes from a client."""
        key = (endpoint, outcome, reason)
        self.requests[key] = self.requests.get(key, 0) + 1


GAUGES: Final = {
    "mappings": "Mappings that can be used, by kind.",
    "mappings_rejected": "Mappings that can't be used.",
    "mappings_age_seconds": "Time since the mappings in use were last confirmed to be current.",
    "mappings_updates_failing": "1 while the mappings in use can't be kept up to date.",
    "certificate_expiry_timestamp_seconds": "When the certificate in use expires.",
    "certificate_reload_failing": "1 while the certificate files can't be loaded.",
    "connections": "Connections to the admission port.",
    "connections_handshaking": "Connections whose TLS handshake is not done.",
    "connections_held_bytes": "Bytes of unfinished requests and unread answers.",
    "ready": "1 while /readyz answers 200.",
}
COUNTERS: Final = {
    "watch_failures": (
        "Lists and watches of mappings at the API server that failed, by kind; after a pause"
        " each is followed by another list or watch."
    ),
    "certificate_reload_failures": "Failed attempts to load a new certificate.",
    "clients_refused": "TLS handshakes of clients without a certificate of --client-ca.",
    "connections_evicted": "Connections that were closed at a limit, by limit.",
}
LABELS: Final = {
    "mappings": "kind",
    "watch_failures": "kind",
    "clients_refused": "reason",
    "connections_evicted": "reason",
}
"""The label of those that have one."""


class WebhookCollector(Collector):
    """Exports counts and state to Prometheus.

    `state` returns the value, or the values by label, of each gauge and counter.
    """

    def __init__(
        self,
        metrics: AdmissionMetrics,
        state: Callable[[], Mapping[str, float | Mapping[str, float]]],
    ) -> None:
        self._metrics = metrics
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Return all metric families."""
        requests = CounterMetricFamily(
            "accelbind_admission_requests",
            "Requests by endpoint, outcome and reason.",
            labels=("endpoint", "outcome", "reason"),
        )
        for labels, number in self._metrics.requests.items():
            requests.add_metric(labels, number)
        yield requests
        yield self._metrics.seconds.family(
            "accelbind_admission_seconds", "Time from a whole request to its answer."
        )
        yield self._metrics.sizes.family(
            "accelbind_admission_request_bytes", "Sizes of requests' bodies."
        )
        for name, value in self._state().items():
            family = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
            documentation = GAUGES.get(name) or COUNTERS[name]
            if isinstance(value, Mapping):
                metric = family(f"accelbind_{name}", documentation, labels=(LABELS[name],))
                for label, amount in value.items():
                    metric.add_metric((label,), amount)
                yield metric
            else:
                yield family(f"accelbind_{name}", documentation, value=float(value))
