"""The metrics of `accelbind certs run`."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge


class CertsMetrics:
    """Counters and gauges in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"accelbind_certs_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(f"accelbind_{name}", text, labels, registry=registry)

        self.expiry = gauge(
            "certs_expiry_timestamp_seconds",
            "When the certificates in the Secrets expire.",
            labels=("certificate",),
        )
        self.issued = counter(
            "issued", "Certificates that this replica created and wrote.", labels=("certificate",)
        )
        for certificate in ("ca", "serving"):
            self.issued.labels(certificate)
        self.injections = counter("injections", "Bundles written to webhook configurations.")
        self.conflicts = counter("conflicts", "Writes that another replica preceded.")
        self.failures = counter("failures", "Rounds in which something failed.")
        self.trusted = gauge(
            "certs_trusted_cas", "CAs in the bundle; 2 while one replaces another."
        )
        self.failing = gauge("certs_failing", "1 while something fails.")
        self.succeeded = gauge(
            "certs_last_success_timestamp_seconds", "When a round last succeeded."
        )
        self.missing = gauge(
            "certs_configurations_missing", "Webhook configurations that do not exist."
        )
        self.clock_offset = gauge(
            "certs_clock_offset_seconds", "How far the API server's clock is ahead of ours."
        )
        self.ready = gauge("ready", "1 while /readyz answers 200.")
