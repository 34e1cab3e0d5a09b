"""The settings of `accelbind plugin`.

A setting is one field: its flag, variable, help and documentation follow from it. After a change
run `make docs` and `make golden`.
"""

import os
import socket
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from services.containers.permission import Enforce
from services.node.settings import CARDS, AbsolutePath, NodeSettings
from services.process.settings import PROCESS, Flag, Port
from services.programming.clock import ClockCheck

KUBELET: Final = "Kubelet and cluster"
PROGRAMMING: Final = "Programming"


class Programming(StrEnum):
    """How functions get into regions, in mode region."""

    PRESTART = "prestart"
    """Before a container starts, when the kubelet calls `PreStartContainer`."""
    OCI_HOOK = "oci-hook"
    """When the container runtime calls the OCI hook."""
    NONE = "none"
    """Never: a container only starts on functions that are already there."""


def default_node_name() -> str:
    """This node's name: `NODE_NAME`, which a DaemonSet sets from the field, or the host's name."""
    return os.environ.get("NODE_NAME") or socket.gethostname()


class PluginSettings(NodeSettings):
    """The settings of `accelbind plugin`."""

    cdi_dir: Annotated[AbsolutePath | None, Flag("DIR", CARDS, "none")] = None
    """Folder of CDI files, such as /var/run/cdi, to describe the devices in."""
    cdi: Annotated[bool, Flag(group=CARDS)] = False
    """Give containers the CDI names of their devices too."""
    kubelet_dir: Annotated[AbsolutePath, Flag("DIR", KUBELET)] = Path("/var/lib/kubelet")
    """The kubelet's folder, with device-plugins/ and pod-resources/."""
    node_name: Annotated[
        str,
        Field(min_length=1, max_length=253),
        Flag("NAME", KUBELET, "$NODE_NAME, or the host's name"),
    ] = Field(default_factory=default_node_name)
    """This node's name in the cluster."""
    kubeconfig: Annotated[
        AbsolutePath | None, Flag("FILE", KUBELET, "$KUBECONFIG, or the pod's service account")
    ] = None
    """How to reach the API server, for mode region, the node's annotation and Events."""
    pod_logs_dir: Annotated[AbsolutePath, Flag("DIR", KUBELET)] = Path("/var/log/pods")
    """The host's /var/log/pods, which says which pod has which UID. Needed in mode region and where
    mappings are checked: without it, no container with a device starts there."""
    programming: Annotated[Programming, Flag("HOW", PROGRAMMING)] = Programming.PRESTART
    """How functions get into regions: prestart (before a container starts), oci-hook (from the
    runtime's hook; needs --cdi-dir and a runtime with CDI), none (they are only verified)."""
    user_clock: Annotated[ClockCheck, Flag("HOW", PROGRAMMING)] = ClockCheck.CHECK
    """What to do about user clocks: check (refuse one above what the bitstream asks for, warn below
    it), leave (don't measure them). They are never set."""
    enforce_mappings: Annotated[Enforce, Flag("WHEN", PROGRAMMING)] = Enforce.AUTO
    """When to check before a container starts that its namespace maps what it was given: auto (in
    modes region and regiondevel), always (in mode af too), never."""
    hook_path: Annotated[AbsolutePath, Flag("FILE", PROGRAMMING)] = Path(
        "/opt/accelbind/hook/accelbind-hook"
    )
    """Where the host has the OCI hook; the container runtime starts it from there."""
    bitstreams: Annotated[AbsolutePath, Flag("DIR", PROGRAMMING)] = Path("/srv/intel.com/fpga")
    """Folder of this node's bitstreams."""
    state_dir: Annotated[AbsolutePath, Flag("DIR", PROGRAMMING)] = Path("/run/accelbind")
    """Folder of locks and records, shared by all who program on this host."""
    metrics_port: Annotated[Port, Flag("PORT", PROCESS)] = 9102
    """Port for metrics and probes; 0 takes any free one."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.cdi and self.cdi_dir is None:
            raise ValueError("--cdi names devices that a file in --cdi-dir describes: set that too")
        if self.programming is Programming.OCI_HOOK and self.cdi_dir is None:
            raise ValueError(
                "--programming=oci-hook announces the hook in a file in --cdi-dir: set that too"
            )
        return self
