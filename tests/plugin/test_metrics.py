from dataclasses import replace

from prometheus_client import generate_latest

from plugin.metrics import PluginMetrics
from services.domain.devices import Device, PluginMode, Problem
from services.domain.tree import Memory, Tree, empty_tree
from services.runtime.metrics import new_registry

OK = Device("p0", "d/r", healthy=True)
BAD = replace(OK, id="p1", healthy=False, reasons=(Problem("a", "m"), Problem("b", "m")))


def test_devices_are_counted_as_a_scrape_finds_them() -> None:
    registry, trees = new_registry(), [empty_tree(PluginMode.AF)]
    PluginMetrics(registry).watch(lambda: trees[-1], lambda: 2)

    def count(resource: str, health: str, reason: str) -> float | None:
        labels = {"resource": resource, "health": health, "reason": reason}
        return registry.get_sample_value("accelbind_devices", labels)

    devices = {"p0": OK, "p1": BAD, "p2": replace(OK, id="p2")}
    unplaced = (replace(BAD, resource=""),)
    trees.append(Tree({"d/r": devices}, unplaced, Memory(PluginMode.AF)))
    assert count("d/r", "Healthy", "") == 2
    assert count("d/r", "Unhealthy", "a") == 1
    assert count("", "Unhealthy", "a") == 1
    trees.append(
        Tree({"d/r": {"p1": replace(BAD, healthy=True, reasons=())}}, (), Memory(PluginMode.AF))
    )
    assert count("d/r", "Healthy", "") == 1
    assert count("d/r", "Unhealthy", "a") is None


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
