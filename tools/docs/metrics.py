"""Metrics of the processes, from the registries that they fill."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from certs.metrics import CertsMetrics
from plugin.device_plugin.face import DevicePlugin
from plugin.dra.face import DraDriver
from plugin.process import Plugin
from plugin.settings import Api, PluginSettings
from services.devices.model import PluginMode
from services.kube.access import Access
from services.kube.client import ClusterClient
from services.process.http import build_info, new_registry
from tools.docs.texts import code, table
from webhook.metrics import COUNTERS, GAUGES, LABELS, AdmissionMetrics, WebhookCollector

UNITS: Final = {
    "seconds": "seconds",
    "bytes": "bytes",
    "celsius": "°C",
    "watts": "W",
}
"""Last word of a metric's name → unit."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A metric."""

    name: str
    """As in queries; a histogram without its suffixes."""
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def unit(self) -> str:
        """Unit; empty for counts and for 0 or 1."""
        words = self.name.removesuffix("_total").split("_")
        if words[-2:] == ["timestamp", "seconds"]:
            return "seconds since 1970"
        return UNITS.get(words[-1], "")


def sections() -> Iterator[str]:
    for process, registry in PROCESSES.items():
        rows = (
            (code(each.name), each.kind, ", ".join(map(code, each.labels)), each.unit, each.help)
            for each in shown(registry())
        )
        headings = ("metric", "type", "labels", "unit", "description")
        yield f"### `accelbind {process}`\n\n" + table(headings, rows)


def shown(registry: CollectorRegistry) -> list[Shown]:
    """Return the metrics of a registry by name, without the `_created` series of the client."""
    wrapped = {
        collector._name: collector._labelnames  # noqa: SLF001 - labels are available nowhere else
        for collector in registry._collector_to_names  # noqa: SLF001 - the same
        if isinstance(collector, MetricWrapperBase)
    }
    return sorted(
        (_shown(each, wrapped) for each in registry.collect() if not _beside(each)),
        key=lambda each: each.name,
    )


def _beside(family: Metric) -> bool:
    """Return whether the client adds it by itself: the time when a counter was created."""
    return family.name.endswith("_created")


def _shown(family: Metric, wrapped: dict[str, tuple[str, ...]]) -> Shown:
    labels = wrapped.get(family.name, getattr(family, "_labelnames", ()))
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return Shown(name, family.type, tuple(labels), family.documentation)


def of_webhook() -> CollectorRegistry:
    registry = _registry("webhook")
    state: dict[str, float | dict[str, float]] = {
        name: {} if name in LABELS else 0.0 for name in (*GAUGES, *COUNTERS)
    }
    registry.register(WebhookCollector(AdmissionMetrics(), lambda: state))
    return registry


def of_plugin() -> CollectorRegistry:
    settings = PluginSettings(node_name="n1")
    process = Plugin(settings).process
    DevicePlugin(PluginMode.AF, settings, process)
    return process.registry


def of_dra() -> CollectorRegistry:
    connection = ClusterClient(Access("http://127.0.0.1:1"))
    settings = PluginSettings(api=Api.DRA, node_name="n1")
    process = Plugin(settings, connection).process
    DraDriver(settings, process, connection)
    return process.registry


def of_certs() -> CollectorRegistry:
    registry = _registry("certs")
    CertsMetrics(registry)
    return registry


def _registry(component: str) -> CollectorRegistry:
    registry = new_registry()
    build_info(registry, component)
    return registry


PROCESSES: Final[dict[str, Callable[[], CollectorRegistry]]] = {
    "webhook": of_webhook,
    "plugin": of_plugin,
    "plugin --api dra": of_dra,
    "certs run": of_certs,
}
"""Command of the process → its registry."""
