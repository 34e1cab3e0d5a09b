"""The containers that start with an OCI hook, and the hook's message about one of them."""

from collections.abc import Iterable
from typing import Final

import msgspec

from services.containers.holders import ContainerIdentity
from services.kubelet.values import CheckpointEntry
from services.names import REGION_PREFIX
from services.process.errors import HookMissing, InvalidInput
from services.process.json import UNREADABLE
from services.process.text import listing, plain, quote

# Set by the runtime in the container's configuration; pods can't. Nothing else that the container
# says of itself counts.
_NAMES: Final = (
    ("io.kubernetes.cri.sandbox-uid", "io.kubernetes.cri.container-name"),
    ("io.kubernetes.pod.uid", "io.kubernetes.container.name"),
)
"""Annotations of containerd and of CRI-O: UID of the pod, name of the container."""


class _Message(msgspec.Struct):
    region: str
    annotations: dict[str, str]


_DECODER: Final = msgspec.json.Decoder(_Message)


def parse(message: bytes) -> tuple[ContainerIdentity, str]:
    """The container that starts, and the region that the CDI file gave it.

    Raises:
        InvalidInput: The message doesn't name one container of one pod.
    """
    try:
        call = _DECODER.decode(message)
    except UNREADABLE as error:
        raise InvalidInput(f"the hook's message can't be read: {error}") from error
    named = {
        ContainerIdentity(call.annotations[uid], call.annotations[name])
        for uid, name in _NAMES
        if call.annotations.get(uid) and call.annotations.get(name)
    }
    if len(named) != 1:  # two: a pod's own annotations that imitate another runtime's
        raise InvalidInput(
            "the runtime's annotations don't say which container of which pod is starting:"
            f" containerd and CRI-O set {' and '.join(_NAMES[0])}, or {' and '.join(_NAMES[1])}"
        )
    return named.pop(), call.region


def held_regions(
    container: ContainerIdentity, region: str, entries: Iterable[CheckpointEntry]
) -> tuple[str, tuple[str, ...]]:
    """The full name of the resource with a region, and all regions of it that the container has.

    Raises:
        InvalidInput: The region was not allocated to the container.
    """
    held: dict[str, set[str]] = {}
    for entry in entries:
        holder = ContainerIdentity(entry.pod_uid, entry.container)
        if container == holder and entry.resource.startswith(REGION_PREFIX):
            held.setdefault(entry.resource, set()).update(entry.device_ids)
    for resource, names in held.items():
        if region in names:
            return resource, tuple(sorted(names))
    raise InvalidInput(
        f"the container has {plain(region)}, which the kubelet has not allocated to it:"
        " ask for a region as a resource"
    )


def require_no_plain_nodes(allocations: Iterable[CheckpointEntry]) -> None:
    """Refuse a container that was given device nodes otherwise than through CDI."""
    # The kubelet keeps what a container was allocated until its pod is deleted. A container that
    # was allocated devices before hook mode gets its nodes from there, even if nothing calls the
    # hook.
    for each in allocations:
        if each.nodes != ():
            nodes = listing([plain(node) for node in (each.nodes or ["unknown nodes"])[:8]])
            raise HookMissing(
                f"container {quote(each.container)} was allocated its devices before this node"
                f" used --programming=oci-hook: the kubelet gives it {nodes} without CDI, and so"
                " without the OCI hook that programs them; delete the pod; a new one gets"
                " its devices through CDI"
            )
