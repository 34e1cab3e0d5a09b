"""What the webhook counts, cheap enough for every request.

Plain numbers in plain dicts, changed by the event loop only and turned into Prometheus' families
when somebody asks: prometheus_client's own counters look up labels and take a lock each time.
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
    """Counts values by size.

    Args:
        bounds: The upper bounds of the buckets, ascending; one without a bound follows.
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        """As Prometheus wants it: each bucket holds those before it."""
        total, buckets = 0, []
        bounds = [*map(str, self._bounds), "+Inf"]
        for bound, count in zip(bounds, self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=self._sum)


@dataclass(slots=True)
class AdmissionMetrics:
    """The counts of all requests since the start."""

    requests: dict[tuple[str, str, str], int] = field(default_factory=dict)
    seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    sizes: Histogram = field(default_factory=lambda: Histogram(BYTES))

    def count(self, endpoint: str, outcome: str, reason: str) -> None:
        """Counts a request; all three come from small sets of our own, none from outside."""
        key = (endpoint, outcome, reason)
        self.requests[key] = self.requests.get(key, 0) + 1


@dataclass(frozen=True, slots=True)
class AdmissionSnapshot:
    """What is the case now, beside what has been counted."""

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
    """Shows figures and state to Prometheus.

    Args:
        figures: What is counted.
        state: Tells what is the case now.
    """

    def __init__(self, figures: AdmissionMetrics, state: Callable[[], AdmissionSnapshot]) -> None:
        self._figures = figures
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield self._requests()
        yield self._figures.seconds.family(
            "accelbind_admission_seconds", "Time from a whole request to its answer."
        )
        yield self._figures.sizes.family(
            "accelbind_admission_request_bytes", "Sizes of requests' bodies."
        )
        yield from self._states()

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "accelbind_admission_requests",
            "Requests by endpoint, how they were answered and why.",
            labels=("endpoint", "outcome", "reason"),
        )
        for labels, number in self._figures.requests.items():
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
            "How often new files held something that can't be used.",
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
            "Connections that were closed before their client was done, by limit.",
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
                "Time since the mappings in use were last seen to be the newest.",
                state.age,
            ),
            (
                "mappings_updates_failing",
                "1 while the mappings in use can't be kept up to date.",
                state.outdated,
            ),
            (
                "certificate_expiry_timestamp_seconds",
                "When the certificate that is being shown ends.",
                state.certificate_ends,
            ),
            (
                "certificate_reload_failing",
                "1 while the files hold something that can't be used.",
                state.certificate_failing,
            ),
            ("ready", "1 while /readyz says yes.", state.ready),
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
