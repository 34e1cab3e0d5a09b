"""What the kubelet reports about pods and their devices, as values."""

from dataclasses import dataclass


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
    """Paths in the container of the device nodes that `Allocate` returned, which it gets at each
    start; None if that can't be read."""
    host_nodes: tuple[str, ...] | None = ()
    """Their paths on the host."""


@dataclass(frozen=True, slots=True)
class Held:
    """Devices of a container according to PodResources."""

    container: str
    resource: str
    """Full resource name."""
    device_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class ActivePod:
    """A pod that PodResources lists."""

    namespace: str
    name: str
    held: tuple[Held, ...] = ()
    """The devices of its containers, without those of plain init containers."""
