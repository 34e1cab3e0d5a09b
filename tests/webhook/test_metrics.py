from collections.abc import Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from webhook.metrics import AdmissionMetrics, WebhookCollector


def shown(figures: AdmissionMetrics) -> list[str]:
    registry = CollectorRegistry()
    state: dict[str, float | Mapping[str, float]] = {
        "mappings": {"FpgaRegion": 1},
        "watch_failures": {"AcceleratorFunction": 4},
        "ready": False,
    }
    registry.register(WebhookCollector(figures, lambda: state))
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


def test_the_state_comes_out_as_gauges_and_counters_with_their_labels() -> None:
    lines = shown(AdmissionMetrics())
    assert 'accelbind_mappings{kind="FpgaRegion"} 1.0' in lines
    assert 'accelbind_watch_failures_total{kind="AcceleratorFunction"} 4.0' in lines
    assert "accelbind_ready 0.0" in lines
