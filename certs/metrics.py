"""The metrics of `accelbind certs run`."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class CertsMetrics:
    """A counter and gauges in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.expiry = Gauge(
            "accelbind_certs_expiry_timestamp_seconds",
            "When the certificates in the Secrets expire.",
            ["certificate"],
            registry=registry,
        )
        self.trusted = Gauge(
            "accelbind_certs_trusted_cas",
            "CAs in the bundle; 2 while one replaces another.",
            registry=registry,
        )
        self.failures = Counter(
            "accelbind_certs_failures", "Rounds in which something failed.", registry=registry
        )
        self.failing = Gauge(
            "accelbind_certs_failing", "1 while something fails.", registry=registry
        )
        self.ready = Gauge("accelbind_ready", "1 while /readyz answers 200.", registry=registry)
