"""The metrics of the DRA driver: what it counts, and what a scrape shows of its node's devices."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.node.metrics import device_gauges, new_counter
from services.node.state import NodeState

PREPARE_OUTCOMES: Final = ("prepared", "refused", "failed")
UNPREPARE_OUTCOMES: Final = ("unprepared", "failed")
REGISTRATION_OUTCOMES: Final = ("ok", "failed")
WRITE_OUTCOMES: Final = ("created", "updated", "deleted", "failed")

_PREPARE_BUCKETS: Final = (0.01, 0.05, 0.25, 1.0, 5.0, 20.0, 40.0)


class DraMetrics:
    """What the driver counts and measures."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.prepared = new_counter(
            registry,
            "claims_prepared",
            "Claims that the kubelet wanted prepared, by outcome (prepared, refused, failed).",
            ("outcome",),
            known=PREPARE_OUTCOMES,
        )
        self.prepare_seconds = Histogram(
            "accelbind_claim_prepare_seconds",
            "Seconds that preparing a claim takes, until the kubelet is answered.",
            buckets=_PREPARE_BUCKETS,
            registry=registry,
        )
        self.unprepared = new_counter(
            registry,
            "claims_unprepared",
            "Claims that the kubelet gave back, by outcome (unprepared, failed).",
            ("outcome",),
            known=UNPREPARE_OUTCOMES,
        )
        self.registrations = new_counter(
            registry,
            "driver_registrations",
            "Answers of the kubelet to the registration of the DRA driver, by outcome (ok,"
            " failed).",
            ("outcome",),
            known=REGISTRATION_OUTCOMES,
        )
        self.slice_writes = new_counter(
            registry,
            "slice_writes",
            "Writes of ResourceSlices, by outcome (created, updated, deleted, failed).",
            ("outcome",),
            known=WRITE_OUTCOMES,
        )


@dataclass(eq=False)
class DraCollector(Collector):
    """What is known of the node's devices."""

    state: NodeState

    def collect(self) -> Iterator[Metric]:
        """The families, one after the other."""
        advertised = self.state.advertised
        yield from device_gauges([*advertised.not_offered, *advertised.devices()])
