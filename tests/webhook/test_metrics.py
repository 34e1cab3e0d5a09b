from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from webhook.metrics import COUNTERS, GAUGES, AdmissionMetrics, WebhookCollector

VALUES: dict[str, float | dict[str, float]] = {
    "mappings": {"AcceleratorFunction": 3, "FpgaRegion": 1},
    "mappings_rejected": 2,
    "mappings_age_seconds": 0.5,
    "mappings_updates_failing": True,
    "watch_failures": {"AcceleratorFunction": 4, "FpgaRegion": 0},
    "certificate_expiry_timestamp_seconds": 1.5e9,
    "certificate_reload_failing": True,
    "certificate_reload_failures": 3,
    "clients_refused": {"no-certificate": 2},
    "connections": 5,
    "connections_handshaking": 2,
    "connections_held_bytes": 7_000,
    "connections_evicted": {"memory": 3},
    "ready": False,
}


def shown(figures: AdmissionMetrics) -> list[str]:
    registry = CollectorRegistry()
    registry.register(WebhookCollector(figures, lambda: VALUES))
    return generate_latest(registry).decode().splitlines()


def test_requests_come_out_by_endpoint_outcome_and_reason() -> None:
    figures = AdmissionMetrics()
    for _ in range(3):
        figures.count("mutate", "denied", "unknown-name")
    figures.count("validate", "allowed", "already-physical")
    lines = shown(figures)
    family = "accelbind_admission_requests_total"
    assert f'{family}{{endpoint="mutate",outcome="denied",reason="unknown-name"}} 3.0' in lines
    assert (
        f'{family}{{endpoint="validate",outcome="allowed",reason="already-physical"}} 1.0' in lines
    )


def test_buckets_hold_what_is_not_above_their_bound_and_all_before() -> None:
    figures = AdmissionMetrics()
    for seconds in (0.00004, 0.00005, 0.0002, 3.0):
        figures.seconds.observe(seconds)
    figures.sizes.observe(2048)
    figures.sizes.observe(2049)
    lines = shown(figures)
    assert 'accelbind_admission_seconds_bucket{le="5e-05"} 2.0' in lines
    assert 'accelbind_admission_seconds_bucket{le="0.00025"} 3.0' in lines
    assert 'accelbind_admission_seconds_bucket{le="0.5"} 3.0' in lines
    assert 'accelbind_admission_seconds_bucket{le="+Inf"} 4.0' in lines
    assert "accelbind_admission_seconds_count 4.0" in lines
    assert 'accelbind_admission_request_bytes_bucket{le="2048.0"} 1.0' in lines
    assert "accelbind_admission_request_bytes_sum 4097.0" in lines


def test_the_state_comes_out_by_name_and_label() -> None:
    assert set(VALUES) == {*GAUGES, *COUNTERS}
    lines = shown(AdmissionMetrics())
    for line in (
        'mappings{kind="FpgaRegion"} 1.0',
        "mappings_age_seconds 0.5",
        'watch_failures_total{kind="AcceleratorFunction"} 4.0',
        "certificate_expiry_timestamp_seconds 1.5e+09",
        "certificate_reload_failing 1.0",
        "certificate_reload_failures_total 3.0",
        'clients_refused_total{reason="no-certificate"} 2.0',
        "connections_held_bytes 7000.0",
        'connections_evicted_total{reason="memory"} 3.0',
        "ready 0.0",
    ):
        assert f"accelbind_{line}" in lines
