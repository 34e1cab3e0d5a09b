"""What the certificates' process shows to Prometheus."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from certs.keeper import Counts


@dataclass(slots=True)
class State:
    """What is the case now.

    Attributes:
        ends: When certificates end, by `ca` and `serving`; none that isn't there.
        trusted: How many CAs the bundle holds.
        problem: Why something couldn't be done; empty if all is well.
        failures: How many rounds failed, as a whole or in part.
        succeeded: Seconds since the epoch of the last round that didn't.
        missing: How many webhook configurations aren't there.
        behind: How many replicas keep an old CA in the bundle.
        ready: Whether `/readyz` says yes.
        offset: Seconds that the API server's clock is ahead of ours.
    """

    ends: dict[str, datetime] = field(default_factory=dict)
    trusted: int = 0
    problem: str = ""
    failures: int = 0
    succeeded: float = 0.0
    missing: int = 0
    behind: int = 0
    ready: bool = False
    offset: float = 0.0


class CertsCollector(Collector):
    """Shows counts and state to Prometheus.

    Args:
        counts: What has been done.
        state: Tells what is the case now.
    """

    def __init__(self, counts: Counts, state: Callable[[], State]) -> None:
        self._counts = counts
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """All families."""
        state = self._state()
        ends = GaugeMetricFamily(
            "accelbind_certs_expiry_timestamp_seconds",
            "When the certificates in the Secrets end.",
            labels=("certificate",),
        )
        for name, moment in state.ends.items():
            ends.add_metric((name,), moment.timestamp())
        yield ends
        written = CounterMetricFamily(
            "accelbind_certs_issued",
            "Certificates that this replica has made and that counted.",
            labels=("certificate",),
        )
        for name, number in self._counts.written.items():
            written.add_metric((name,), number)
        yield written
        yield from self._counters(state)
        yield from self._gauges(state)

    def _counters(self, state: State) -> Iterator[Metric]:
        for name, documentation, number in (
            ("injections", "Bundles put into webhook configurations.", self._counts.injected),
            ("conflicts", "Writes that another replica was before.", self._counts.conflicts),
            ("failures", "Rounds in which something couldn't be done.", state.failures),
        ):
            yield CounterMetricFamily(f"accelbind_certs_{name}", documentation, value=number)

    def _gauges(self, state: State) -> Iterator[Metric]:
        for name, documentation, value in (
            ("certs_trusted_cas", "CAs in the bundle; 2 while one takes over.", state.trusted),
            ("certs_failing", "1 while something couldn't be done.", bool(state.problem)),
            (
                "certs_last_success_timestamp_seconds",
                "When everything was last seen to be right.",
                state.succeeded,
            ),
            (
                "certs_configurations_missing",
                "Webhook configurations that aren't there.",
                state.missing,
            ),
            (
                "certs_replicas_behind",
                "Webhook replicas for which an old CA stays although its time is over.",
                state.behind,
            ),
            (
                "certs_clock_offset_seconds",
                "How far the API server's clock is ahead of ours.",
                state.offset,
            ),
            ("ready", "1 while /readyz says yes.", state.ready),
        ):
            yield GaugeMetricFamily(f"accelbind_{name}", documentation, value=float(value))
