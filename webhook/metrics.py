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
    """A histogram.

    Args:
        bounds: The upper bounds of the buckets, ascending; `+Inf` is added.
    """

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


@dataclass(frozen=True, slots=True)
class AdmissionSnapshot:
    """The current state of the process."""

    mappings: Mapping[str, int]
    rejected: int
    age: float
    outdated: bool
    watch_failures: Mapping[str, int]
    certificate_ends: float
    certificate_failing: bool
    certificate_failures: int
    clients_refused: Mapping[str, int]
    ready: bool
    connections: int
    handshakes: int
    held_bytes: int
    evicted: Mapping[str, int]


class WebhookCollector(Collector):
    """Exports counts and state to Prometheus.

    Args:
        metrics: The counts.
        state: Returns the current state.
    """

    def __init__(self, metrics: AdmissionMetrics, state: Callable[[], AdmissionSnapshot]) -> None:
        self._metrics = metrics
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Return all metric families."""
        yield self._requests()
        yield self._metrics.seconds.family(
            "accelbind_admission_seconds", "Time from a whole request to its answer."
        )
        yield self._metrics.sizes.family(
            "accelbind_admission_request_bytes", "Sizes of requests' bodies."
        )
        yield from self._states()

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "accelbind_admission_requests",
            "Requests by endpoint, outcome and reason.",
            labels=("endpoint", "outcome", "reason"),
        )
        for labels, number in self._metrics.requests.items():
            family.add_metric(labels, number)
        return family

    def _states(self) -> Iterator[Metric]:
        state = self._state()
        yield _by_label(
            GaugeMetricFamily,
            "mappings",
            "Mappings that can be used, by kind.",
            "kind",
            state.mappings,
        )
        yield _by_label(
            CounterMetricFamily,
            "watch_failures",
            "Lists and watches of mappings at the API server that failed, by kind; after a pause"
            " each is followed by another list or watch.",
            "kind",
            state.watch_failures,
        )
        yield CounterMetricFamily(
            "accelbind_certificate_reload_failures",
            "Failed attempts to load a new certificate.",
            value=state.certificate_failures,
        )
        yield _by_label(
            CounterMetricFamily,
            "clients_refused",
            "TLS handshakes of clients without a certificate of --client-ca.",
            "reason",
            state.clients_refused,
        )
        yield _by_label(
            CounterMetricFamily,
            "connections_evicted",
            "Connections that were closed at a limit, by limit.",
            "reason",
            state.evicted,
        )
        yield from self._gauges(state)

    def _gauges(self, state: AdmissionSnapshot) -> Iterator[Metric]:
        for name, documentation, value in (
            ("connections", "Connections to the admission port.", state.connections),
            (
                "connections_handshaking",
                "Connections whose TLS handshake is not done.",
                state.handshakes,
            ),
            (
                "connections_held_bytes",
                "Memory that unfinished requests, unread answers and TLS buffers hold.",
                state.held_bytes,
            ),
            ("mappings_rejected", "Mappings that can't be used.", state.rejected),
            (
                "mappings_age_seconds",
                "Time since the mappings in use were last confirmed to be current.",
                state.age,
            ),
            (
                "mappings_updates_failing",
                "1 while the mappings in use can't be kept up to date.",
                state.outdated,
            ),
            (
                "certificate_expiry_timestamp_seconds",
                "When the certificate in use expires.",
                state.certificate_ends,
            ),
            (
                "certificate_reload_failing",
                "1 while the certificate files can't be loaded.",
                state.certificate_failing,
            ),
            ("ready", "1 while /readyz answers 200.", state.ready),
        ):
            yield GaugeMetricFamily(f"accelbind_{name}", documentation, value=float(value))


def _by_label(
    family: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    documentation: str,
    label: str,
    values: Mapping[str, float],
) -> Metric:
    found = family(f"accelbind_{name}", documentation, labels=(label,))
    for value, number in values.items():
        found.add_metric((value,), number)
    return found
