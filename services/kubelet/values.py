"""What the kubelet is told of devices, and reports about pods and theirs, as values."""

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
    nodes: tuple[str, ...] | None = ()
    """Paths on the host of the device nodes that `Allocate` returned, which the container gets at
    each start; None if that can't be read."""


@dataclass(frozen=True, slots=True)
class Held:
    """Devices of a container of an active pod, according to PodResources."""

    namespace: str
    pod: str
    container: str
    resource: str
    """Full resource name."""
    device_ids: frozenset[str]
