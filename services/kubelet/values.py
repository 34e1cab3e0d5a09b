"""Messages to and from the kubelet as values: devices, and pods that have them."""

from dataclasses import dataclass
from typing import Final

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """Devices that a container holds according to the kubelet's checkpoint."""

    pod_uid: str
    container: str
    """Its name; init containers have entries too."""
    resource: str
    """Full resource name."""
    device_ids: frozenset[str]
    # The kubelet keeps the answer to `Allocate`, and gives the container the same at each start.
    nodes: tuple[str, ...] | None = ()
    """Paths on the host of the device nodes that `Allocate` returned; None if unreadable."""


@dataclass(frozen=True, slots=True)
class CountedByKubelet:
    """Resources of device plugins according to the kubelet's checkpoint."""

    registered: frozenset[str]
    """Those for which the kubelet knows a plugin, also one that has ended."""
    held: frozenset[str]
    """Those of which containers have devices."""


@dataclass(frozen=True, slots=True)
class Held:
    """Devices of a container of an active pod, according to PodResources."""

    namespace: str
    pod: str
    container: str
    resource: str
    """Full resource name."""
    device_ids: frozenset[str]
