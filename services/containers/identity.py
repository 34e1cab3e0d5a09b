"""Which container is starting: from the device ids in the kubelet's call to a container of a pod.

The kubelet names only device ids. They lead to entries of its checkpoint (`candidates`), whose UID
leads to a pod by its log folder (`pods_of_folders`). `services.containers.wanted` reads its spec.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.kubelet.values import CheckpointEntry
from services.process.errors import NotAllowed
from services.process.text import plain, quote


@dataclass(frozen=True, slots=True, order=True)
class ContainerIdentity:
    """A container that may be the one that is starting."""

    pod_uid: str
    container: str


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod in the cluster."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{plain(self.namespace)}/{plain(self.name, 120)}"


def allocations(
    entries: Iterable[CheckpointEntry], resource: str, ids: Iterable[str]
) -> tuple[CheckpointEntry, ...]:
    """The checkpoint's entries of exactly these devices of a resource, at least one."""
    wanted = frozenset(ids)
    held_by = tuple(
        entry for entry in entries if entry.resource == resource and entry.device_ids == wanted
    )
    if not held_by or not wanted:
        raise NotAllowed(
            f"the kubelet's checkpoint has no container with exactly these {len(wanted)} devices of"
            f" {resource}, so the starting container is unknown; the kubelet will try again"
        )
    return held_by


def candidates(
    entries: Iterable[CheckpointEntry], resource: str, ids: Iterable[str]
) -> tuple[ContainerIdentity, ...]:
    """The containers that hold exactly these devices of a resource, at least one."""
    # Several of one pod if an app container reuses the devices of a plain init container.
    held_by = allocations(entries, resource, ids)
    return tuple(sorted({ContainerIdentity(entry.pod_uid, entry.container) for entry in held_by}))


def pods_of_folders(folders: Iterable[str]) -> dict[str, PodRef]:
    """Pods by UID, from their log folders; without UIDs that several folders claim."""
    # The kubelet creates a pod's folder before it asks whether a container of it may start.
    pods = [*filter(None, map(pod_of_folder, folders))]
    folders_of = Counter(pod.uid for pod in pods)
    return {pod.uid: pod for pod in pods if folders_of[pod.uid] == 1}


def pod_of_folder(folder: str) -> PodRef | None:
    """The pod of a log folder, by its name; None if it is not one of a pod."""
    parts = folder.split("_")  # <namespace>_<name>_<uid>; none of the three can contain a `_`
    if len(parts) != 3 or not all(parts):
        return None
    return PodRef(*parts)


def pod_of(containers: Iterable[ContainerIdentity], pods: Mapping[str, PodRef]) -> PodRef:
    """The pod of containers; an error if it is not known, or if there are several."""
    uids = {each.pod_uid for each in containers}
    candidates = [pods[uid] for uid in uids if uid in pods]
    if len(candidates) == len(uids) == 1:
        return candidates[0]
    named = " and ".join(map(quote, sorted(uids)))
    if len(uids) > 1:
        raise NotAllowed(f"the kubelet's checkpoint gives these devices to the pods {named}")
    raise NotAllowed(
        f"the pod with the UID {named} is unknown: it has no log folder; mount the host's"
        " /var/log/pods at --pod-logs-dir"
    )


def display_name(container: str, pod: PodRef) -> str:
    """A container's name for people: `container "c" of pod ns/p`."""
    return f"container {quote(container)} of pod {pod}"
