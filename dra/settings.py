"""The settings of `accelbind dra`.

A setting is one field: its flag, variable, help and documentation follow from it. After a change
run `make docs` and `make golden`.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from services.containers.permission import Enforce
from services.node.settings import CARDS, KUBELET, PROGRAMMING, AbsolutePath, NodeSettings
from services.process.settings import KUBECONFIG, Flag


class Programming(StrEnum):
    """How functions get into regions."""

    ON_PREPARE = "on-prepare"
    """When the kubelet prepares a claim, before its pod has a sandbox."""
    NONE = "none"
    """Never: a claim is only prepared on functions that are already there."""


class DraSettings(NodeSettings):
    """The settings of `accelbind dra`."""

    kubelet_dir: Annotated[AbsolutePath, Flag("DIR", KUBELET)] = Path("/var/lib/kubelet")
    """The kubelet's folder, with plugins/ and plugins_registry/."""
    kubeconfig: Annotated[AbsolutePath | None, Flag("FILE", KUBELET, KUBECONFIG)] = None
    """How to reach the API server, for slices, claims and Events."""
    pod_logs_dir: Annotated[AbsolutePath, Flag("DIR", KUBELET)] = Path("/var/log/pods")
    """The host's /var/log/pods, which says which pods still have devices from the device plugin."""
    enforce_mappings: Annotated[Enforce, Flag("WHEN", PROGRAMMING)] = Enforce.AUTO
    """When to check before a claim is prepared that its namespace maps what it gets: auto (unless a
    pod requests a function that must be there by fpga.intel.com/af-…, which the webhook sees),
    always, never."""
    cdi_dir: Annotated[AbsolutePath, Flag("DIR", CARDS)] = Path("/var/run/cdi")
    """Folder of CDI files, in which the container runtime looks up the devices of claims."""
    programming: Annotated[Programming, Flag("HOW", PROGRAMMING)] = Programming.ON_PREPARE
    """How functions get into regions: on-prepare (when the kubelet prepares a claim), none (they
    are only verified)."""
