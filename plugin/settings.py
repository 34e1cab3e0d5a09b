"""Everything that can be set about a plugin process."""

import os
import socket
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from plugin.options import PluginOptions, Programming
from services.containers.enforce import Enforce
from services.devices.limits import parse_ignored
from services.devices.model import PluginMode
from services.devices.resources import DEFAULT_UNITS
from services.process.errors import InvalidSettings
from services.process.listening import ALL_ADDRESSES
from services.process.settings import CommaSeparated, ProcessSettings

AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]


def default_node_name() -> str:
    """This node's name: `NODE_NAME`, which a DaemonSet sets from the field, or the host's name."""
    return os.environ.get("NODE_NAME") or socket.gethostname()


def _checked(words: tuple[str, ...]) -> tuple[str, ...]:
    try:
        parse_ignored(words)
    except InvalidSettings as error:
        raise ValueError(str(error)) from error
    return words


class PluginSettings(ProcessSettings):
    """Settings of `accelbind plugin`; flags, `ACCELBIND_*` and a file fill them, in that order."""

    mode: PluginMode = PluginMode.AF
    """What a device is on this node."""
    root: AbsolutePath = Path("/")
    """Folder below which `sys/` and `dev/` are read."""
    host_root: AbsolutePath | None = None
    """What stands before `/dev/…` in the host paths given to the kubelet; as `root` if None."""
    kubelet_dir: AbsolutePath = Path("/var/lib/kubelet")
    """Holds `device-plugins/` and `pod-resources/`."""
    node_name: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        default_factory=default_node_name
    )
    """This node's name in the cluster."""
    units: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_UNITS
    """How many units there are in mode `units`."""
    scan_interval: Annotated[float, Field(ge=0.05, le=3600)] = 5.0
    """Seconds between two looks at the cards."""
    healthy_after: Annotated[int, Field(ge=1, le=1000)] = 3
    """Good scans in a row after which a device that was unhealthy is healthy again."""
    sensor_interval: Annotated[float, Field(ge=0.05, le=3600)] = 30.0
    """Seconds between two reads of temperatures, power and error counters."""
    max_temperature: Annotated[float, Field(gt=-100, le=400)] | None = None
    """°C beyond which a card is unhealthy; None: what the card says itself counts."""
    max_power: Annotated[float, Field(gt=0, le=5000)] | None = None
    """W beyond which a card is unhealthy; None: none are too many."""
    ignore_errors: Annotated[CommaSeparated, AfterValidator(_checked)] = ()
    """Errors that make nothing unhealthy: `fme-errors`, or some bits, `port-errors=0x8`."""
    metrics_host: str = ALL_ADDRESSES
    """Address for metrics and probes; `::` means all, IPv6 and IPv4."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9102
    """Port for metrics and probes; 0 means any free one."""
    kubeconfig: AbsolutePath | None = None
    """How to reach the API server; None: `KUBECONFIG`, or the pod's service account."""
    pod_logs_dir: AbsolutePath = Path("/var/log/pods")
    """Where the host's `/var/log/pods` is, whose folders' names tell which pod a UID belongs to."""
    programming: Programming = Programming.PRESTART
    """How functions get into regions, in mode region."""
    enforce_mappings: Enforce = Enforce.AUTO
    """When a namespace's mappings are asked on the node, before a container starts."""
    hook_path: AbsolutePath = Path("/opt/accelbind/hook/accelbind-hook")
    """Where the host has the OCI hook; a container runtime starts it from there."""
    bitstreams: AbsolutePath = Path("/srv/intel.com/fpga")
    """Where this node keeps its bitstreams."""
    state_dir: AbsolutePath = Path("/run/accelbind")
    """Where locks, records of programs and approvals are; shared by all who program here."""

    clear_errors: bool = True
    """Whether errors that a container left in a port are cleared once nobody has it."""
    cdi_dir: AbsolutePath | None = None
    """Folder of CDI files to keep one about this node's devices in; None: none is written."""
    cdi: bool = False
    """Whether `Allocate` names devices by CDI, beside their nodes."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.cdi and self.cdi_dir is None:
            raise ValueError("--cdi names devices that a file in --cdi-dir describes: set that too")
        if self.programming is Programming.OCI_HOOK and self.cdi_dir is None:
            raise ValueError(
                "--programming=oci-hook announces the hook in a file in --cdi-dir: set that too"
            )
        return self

    def options(self) -> PluginOptions:
        """What the process has to know of all this, without pydantic."""
        values = {each.name: getattr(self, each.name) for each in fields(PluginOptions)}
        return PluginOptions(**values | {"host_root": self.host_root or self.root})
