"""Metrics of the DRA driver; `services.node.metrics` has devices and cards."""

from typing import Final

from prometheus_client import CollectorRegistry, Histogram

from services.node.metrics import new_counter

_PREPARE_BUCKETS: Final = (0.01, 0.05, 0.25, 1.0, 5.0, 20.0, 40.0)


class DraMetrics:
    """Counts and measurements of the driver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.prepared = new_counter(
            registry,
            "claims_prepared",
            "Claims that the kubelet wanted prepared, by outcome (prepared, refused, failed).",
            ("outcome",),
            known=("prepared", "refused", "failed"),
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
            "Claims that were given back, by outcome (unprepared, failed; leftover: the kubelet had"
            " forgotten it, and nobody used it any more).",
            ("outcome",),
            known=("unprepared", "failed", "leftover"),
        )
        self.registrations = new_counter(
            registry,
            "driver_registrations",
            "Answers of the kubelet to the registration of the DRA driver, by outcome (ok,"
            " failed).",
            ("outcome",),
            known=("ok", "failed"),
        )
        self.slice_writes = new_counter(
            registry,
            "slice_writes",
            "Writes of ResourceSlices, by outcome (created, updated, deleted, failed).",
            ("outcome",),
            known=("created", "updated", "deleted", "failed"),
        )
