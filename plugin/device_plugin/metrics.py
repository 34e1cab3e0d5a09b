"""Metrics of the device plugin API; `services.node.metrics` has devices and cards."""

from prometheus_client import CollectorRegistry

from services.node.metrics import new_counter


class PluginMetrics:
    """Counts and measurements of the plugin."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.allocations = new_counter(
            registry,
            "allocations",
            "Containers given devices, by resource and outcome (given, refused).",
            ("resource", "outcome"),
        )
        self.registrations = new_counter(
            registry,
            "registrations",
            "Attempts to register a resource with the kubelet, by outcome (ok, failed).",
            ("resource", "outcome"),
        )
        self.prestarts = new_counter(
            registry,
            "prestart",
            "Containers about to start whose function was verified, by outcome (allowed, refused,"
            " unverifiable, failed).",
            ("outcome",),
            known=("allowed", "refused", "unverifiable", "failed"),
        )
        self.hook_calls = new_counter(
            registry,
            "hook_calls",
            "Calls of the OCI hook, by outcome (allowed, refused, failed; missing: a start was"
            " refused, since the runtime would not call the hook).",
            ("outcome",),
        )

    def forget(self, resource: str) -> None:
        """Delete the series of an ended resource."""
        # In mode af each function is a resource: programming would add series for ever.
        for outcome in ("given", "refused"):
            self.allocations.remove(resource, outcome)
        for outcome in ("ok", "failed"):
            self.registrations.remove(resource, outcome)
