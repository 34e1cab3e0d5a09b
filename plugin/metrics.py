"""The plugin's metrics: what it counts, and what a scrape shows of its node's devices.

What is shown is made at each scrape from what is known: a scrape doesn't ask the kubelet, and no
series outlives its device. `services.node.metrics` has those of cards.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plugin.node_mode import NodeMode
from services.containers.holder_source import HolderSource
from services.devices.model import Device
from services.kubelet.sockets import HEALTHY, UNHEALTHY
from services.node.metrics import device_gauges, gauge, new_counter
from services.node.permissions import PermissionCheck
from services.node.state import NodeState


class PluginMetrics:
    """What the plugin counts and measures."""

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
        self.watch_failures = new_counter(
            registry,
            "watch_failures",
            "Reads and watches of objects of the API server that failed, by kind; each is followed"
            " by another read after a pause.",
            ("kind",),
            known=("Node",),
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
        """Delete the series of an ended resource.

        Reprogramming would otherwise keep adding series.
        """
        for outcome in ("given", "refused"):
            self.allocations.remove(resource, outcome)
        for outcome in ("ok", "failed"):
            self.registrations.remove(resource, outcome)


@dataclass(eq=False)
class DeviceCollector(Collector):
    """What is known of the node in one mode: its devices, their holders, missing permissions."""

    state: NodeState
    mode: NodeMode
    holders: HolderSource
    permissions: PermissionCheck

    def collect(self) -> Iterator[Metric]:
        """The families, one after the other."""
        advertised = self.state.advertised
        yield from _of_mode(self.mode)
        yield from _of_devices([*advertised.not_offered, *advertised.devices()], self.holders)
        yield gauge(
            "permission_missing",
            "Permissions that the plugin needed on its node and hadn't when it started; always 1.",
            ("path", "permission"),
            {(each.path, each.permission): 1 for each in self.permissions.missing},
        )


def _of_mode(mode: NodeMode) -> Iterator[Metric]:
    choice = mode.choice
    yield gauge(
        "node_mode",
        "The node's mode, and who says so (annotation, flag, or last: what was served last"
        " counts until the API server answers); always 1.",
        ("mode", "source"),
        {(choice.mode.value, choice.source): 1},
    )
    yield GaugeMetricFamily(
        "accelbind_node_mode_annotation_invalid",
        "Whether the node's annotation names no mode, so that the one before is kept: 1 or 0.",
        value=bool(choice.error),
    )


def _of_devices(devices: Iterable[Device], holders: HolderSource) -> Iterator[Metric]:
    devices = list(devices)
    tally = Tally(
        (
            device.resource,
            HEALTHY if device.healthy else UNHEALTHY,
            device.reasons[0].reason if device.reasons else "",
        )
        for device in devices
    )
    yield gauge(
        "devices",
        "Devices by resource, health and the first reason for it; no resource: can't be offered.",
        ("resource", "health", "reason"),
        dict(sorted(tally.items())),
    )
    yield from device_gauges(devices)
    # By the resource under which the kubelet allocated it, which may have changed since.
    here = {each.id for each in devices}
    yield gauge(
        "device_holder",
        "Which container has a device, as the kubelet tells; always 1. The labels of a pod are"
        " empty where only the container is known.",
        ("device", "resource", "namespace", "pod", "container"),
        {
            (key, resource, each.namespace, each.pod, each.container): 1
            for (resource, key), owners in sorted(holders.holders.items())
            if key in here
            for each in owners
        },
    )
