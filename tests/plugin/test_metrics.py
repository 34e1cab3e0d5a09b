from prometheus_client import generate_latest

from plugin.metrics import PluginMetrics
from services.process.http import new_registry


def test_what_happens_is_counted() -> None:
    registry = new_registry()
    metrics = PluginMetrics(registry)
    metrics.allocated("d/r", "given")
    metrics.registered("d/r", "ok")
    metrics.prestarted("refused")
    metrics.errors_cleared("cleared")
    metrics.scanned(0.004)
    text = generate_latest(registry).decode()
    for line in (
        'accelbind_allocations_total{outcome="given",resource="d/r"} 1.0',
        'accelbind_registrations_total{outcome="ok",resource="d/r"} 1.0',
        'accelbind_prestart_total{outcome="refused"} 1.0',
        'accelbind_prestart_total{outcome="allowed"} 0.0',
        'accelbind_scan_seconds_bucket{le="0.005"} 1.0',
        'accelbind_scan_seconds_bucket{le="0.001"} 0.0',
    ):
        assert line in text


def test_no_series_of_a_resource_stays_when_it_has_ended() -> None:
    registry = new_registry()
    metrics = PluginMetrics(registry)
    for resource in ("d/r", "d/s"):
        metrics.registered(resource, "ok")
        metrics.registered(resource, "failed")
        metrics.allocated(resource, "given")
    metrics.forget("d/r")
    text = generate_latest(registry).decode()
    assert 'resource="d/r"' not in text
    assert 'accelbind_registrations_total{outcome="failed",resource="d/s"} 1.0' in text
