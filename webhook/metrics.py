"""The webhook's metrics: counts of requests, and the state that a scrape asks for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SECONDS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5)
BYTES: Final = (2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072, 524_288, 1_048_576, 3_145_728)


class AdmissionMetrics:
    """Counts of all requests since the start."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, str], int] = {}
        self.seconds = Histogram(
            "accelbind_admission_seconds",
            "Time from a whole request to its answer.",
            buckets=SECONDS,
            registry=None,
        )
        self.sizes = Histogram(
            "accelbind_admission_request_bytes",
            "Sizes of requests' bodies.",
            buckets=BYTES,
            registry=None,
        )

    def count(self, endpoint: str, outcome: str, reason: str) -> None:
        """Count a request; no label value comes from a client."""
        # A plain number, changed by the event loop only: prometheus_client's counters look up their
        # labels for each request.
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
    "connections_held_bytes": (
        "Bytes of unfinished requests and unread answers, each beyond 64 KiB."
    ),
    "ready": "1 while /readyz answers 200.",
}
COUNTERS: Final = {
    "watch_failures": (
        "Lists and watches of mappings at the API server that failed, by kind; after a pause"
        " each is followed by another list or watch."
    ),
    "certificate_reload_failures": "Failed attempts to load a new certificate.",
}
LABELS: Final = {
    "mappings": "kind",
    "watch_failures": "kind",
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
            "Requests by review, outcome and reason.",
            labels=("review", "outcome", "reason"),
        )
        for labels, number in self._metrics.requests.items():
            requests.add_metric(labels, number)
        yield requests
        yield from self._metrics.seconds.collect()
        yield from self._metrics.sizes.collect()
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
