"""What the kubelet says about pods and their devices, as values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """Devices that a container holds, as the kubelet's checkpoint has it.

    Args:
        pod_uid: UID of its pod.
        container: Its name; init containers have entries too.
        resource: Full resource name.
        device_ids: The devices of that resource.
        nodes: Paths in the container of the device nodes that the plugin gave it in `Allocate`,
            which it gets at each start; None if that can't be read.
    """

    pod_uid: str
    container: str
    resource: str
    device_ids: frozenset[str]
    nodes: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class Held:
    """Devices of a container, as PodResources has it.

    Args:
        container: The container's name.
        resource: Full resource name.
        device_ids: The devices of that resource.
    """

    container: str
    resource: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActivePod:
    """A pod that PodResources lists.

    Args:
        namespace: Its namespace.
        name: Its name.
        held: What its containers have, plain init containers left out.
        containers: The names of these containers, those that have nothing among them.
    """

    namespace: str
    name: str
    held: tuple[Held, ...] = ()
    containers: tuple[str, ...] = ()
