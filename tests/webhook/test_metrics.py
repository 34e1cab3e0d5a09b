from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from webhook.metrics import AdmissionMetrics, AdmissionSnapshot, WebhookCollector

STATE = AdmissionSnapshot(
    mappings={"AcceleratorFunction": 3, "FpgaRegion": 1},
    rejected=2,
    age=0.5,
    outdated=True,
    watch_failures={"AcceleratorFunction": 4, "FpgaRegion": 0},
    certificate_ends=1.5e9,
    certificate_failing=True,
    certificate_failures=3,
    clients_refused={"no-certificate": 2},
    ready=False,
    connections=5,
    handshakes=2,
    held_bytes=7_000,
    evicted={"memory": 3},
)


def shown(figures: AdmissionMetrics) -> list[str]:
    registry = CollectorRegistry()
    registry.register(WebhookCollector(figures, lambda: STATE))
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
    assert 'accelbind_admission_request_bytes_bucket{le="2048"} 1.0' in lines
    assert "accelbind_admission_request_bytes_sum 4097.0" in lines


def test_what_is_the_case_comes_out_as_gauges() -> None:
    lines = shown(AdmissionMetrics())
    assert 'accelbind_mappings{kind="AcceleratorFunction"} 3.0' in lines
    assert 'accelbind_mappings{kind="FpgaRegion"} 1.0' in lines
    assert "accelbind_mappings_rejected 2.0" in lines
    assert 'accelbind_watch_failures_total{kind="AcceleratorFunction"} 4.0' in lines
    assert 'accelbind_watch_failures_total{kind="FpgaRegion"} 0.0' in lines
    assert "accelbind_mappings_age_seconds 0.5" in lines
    assert "accelbind_certificate_expiry_timestamp_seconds 1.5e+09" in lines
    assert "accelbind_certificate_reload_failing 1.0" in lines
    assert "accelbind_ready 0.0" in lines
    assert "accelbind_certificate_reload_failures_total 3.0" in lines
    assert 'accelbind_clients_refused_total{reason="no-certificate"} 2.0' in lines
    assert 'accelbind_connections_evicted_total{reason="memory"} 3.0' in lines
    assert "accelbind_connections 5.0" in lines
    assert "accelbind_connections_handshaking 2.0" in lines
    assert "accelbind_connections_held_bytes 7000.0" in lines
