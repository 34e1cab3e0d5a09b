"""What a plugin process has to know, as plain values.

`plugin.settings` says what may be set and by whom, with pydantic; a process that runs for years on
every node needs only the outcome, and not the library.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from services.containers.enforce import Enforce
from services.devices.model import PluginMode


class Programming(StrEnum):
    """How functions get into regions, in mode region."""

    PRESTART = "prestart"
    """Before a container starts, when the kubelet asks."""
    OCI_HOOK = "oci-hook"
    """When the container runtime has started its OCI hook, which asks."""
    NONE = "none"
    """Not at all: a container starts only on what is there."""


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """The outcome of `plugin.settings.PluginSettings`, whose fields say more.

    Args:
        mode: What a device is on this node.
        root: Folder below which `sys/` and `dev/` are read.
        host_root: Folder below which the host's `dev/` is, as the host sees it.
        kubelet_dir: Holds `device-plugins/` and `pod-resources/`.
        node_name: This node's name in the cluster.
        units: How many units there are in mode `units`.
        scan_interval: Seconds between two looks at the cards.
        healthy_after: Good scans in a row after which a device that was lost is trusted again.
        sensor_interval: Seconds between two reads of what cards measure.
        max_temperature: °C beyond which a card is unhealthy, if any.
        max_power: W beyond which a card is unhealthy, if any.
        ignore_errors: Errors that make nothing unhealthy, as `services.devices.limits` reads them.
        metrics_host: Address for metrics and probes.
        metrics_port: Port for them; 0 means any free one.
        ports_file: Where to write the port taken, if anywhere.
        clear_errors: Whether errors of ports that nobody has are cleared.
        cdi_dir: Folder of CDI files to keep one of ours in, if any.
        cdi: Whether `Allocate` names devices by CDI.
        kubeconfig: How to reach the API server, if a file says it.
        pod_logs_dir: Where the host's `/var/log/pods` is.
        programming: How functions get into regions.
        enforce_mappings: When namespaces' mappings are asked before a container starts.
        hook_path: Where the host has the OCI hook.
        bitstreams: Where this node keeps its bitstreams.
        state_dir: Where locks, records and approvals are.
        log_level: The least severe level logged.
        log_format: `json`, `console` or `auto`.
    """

    mode: PluginMode
    root: Path
    host_root: Path
    kubelet_dir: Path
    node_name: str
    units: int
    scan_interval: float
    healthy_after: int
    sensor_interval: float
    max_temperature: float | None
    max_power: float | None
    ignore_errors: tuple[str, ...]
    metrics_host: str
    metrics_port: int
    ports_file: Path | None
    clear_errors: bool
    cdi_dir: Path | None
    cdi: bool
    kubeconfig: Path | None
    pod_logs_dir: Path
    programming: Programming
    enforce_mappings: Enforce
    hook_path: Path
    bitstreams: Path
    state_dir: Path
    log_level: str
    log_format: str
