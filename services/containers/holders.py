"""Which container is starting, and which have which device: the one answer for all who ask.

The kubelet's calls name only device ids. They lead to entries of its checkpoint (`candidates`),
whose UID leads to a pod by its log folder (`pods_of_folders`). PodResources, which lists no plain
init containers, says which pods these are where log folders don't, and stands in for a missing
checkpoint; for what is offered and shown, also for one that can't be read.
"""

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from services.devices.dra import name_of
from services.devices.held import HELD
from services.devices.model import Device
from services.devices.nodes import exclusive_paths
from services.kubelet.values import CheckpointEntry, Held
from services.names import FUNCTION_PREFIX, REGION_PREFIX, UNIT_RESOURCE
from services.process.errors import NotAllowed
from services.process.problem import Problem
from services.process.text import listing, plain, quote


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


FPGA_RESOURCES: Final = (FUNCTION_PREFIX, REGION_PREFIX, UNIT_RESOURCE)
"""Starts of the names of resources that FPGAs have."""


def served(domains: Iterable[str]) -> tuple[str, ...]:
    """Starts of the names of all resources that are served, with the domains of device types."""
    return (*FPGA_RESOURCES, *(f"{domain}/" for domain in domains))


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A container that has a device; namespace and pod are empty if only the pod's UID is known.

    Of a DRA claim, the container is empty, and the pod unless the claim's status has it; `share` is
    the id of its share of the device.
    """

    namespace: str
    pod: str
    container: str
    claim: str = ""
    share: str = ""

    def __str__(self) -> str:
        if self.claim:
            return f"claim {self.namespace}/{self.claim}"
        return f"container {self.container}" + (self.pod and f" of pod {self.namespace}/{self.pod}")


Holders = Mapping[tuple[str, str], tuple[Holder, ...]]
"""Containers that have a device, by its full resource name and id; never empty.

Several use a device in turn, as an init container and those after it do.
"""


@dataclass(frozen=True, slots=True, order=True)
class Given:
    """Device nodes that a container or a claim was given."""

    who: str
    """For people."""
    resource: str
    """Empty for a claim, which may have a device as another resource."""
    devices: tuple[str, ...]
    """Ids; of a claim the names in slices, which stay when a card is renumbered."""
    nodes: tuple[str, ...]
    """Paths on the host."""


HeldNodes = Mapping[tuple[str, str], tuple[Problem, ...]]
"""Why devices must not be given to others, by resource and id."""


def held_by_pods(holders: Holders) -> frozenset[tuple[str, str]]:
    """Resource and id of the devices that the kubelet has counted."""
    # It doesn't count those of DRA claims. A claim may have a device as another resource, named by
    # its function or its class.
    return frozenset(key for key, users in holders.items() if not all(each.claim for each in users))


class HolderReader(Protocol):
    """Knows which containers have devices."""

    @property
    def holders(self) -> Holders:
        """As last read."""

    @property
    def given(self) -> frozenset[Given]:
        """The nodes of our devices that containers were given, as last read."""

    async def read(self) -> Holders:
        """Which containers have devices now.

        Raises:
            ExternalFailure: That is unknown.
        """

    async def current(self) -> Holders:
        """The same; if that is unknown, the holders as last read.

        Raises:
            HardwareError: None were read yet.
        """


def holders_of_entries(
    entries: Iterable[CheckpointEntry],
    pods: Mapping[str, PodRef],
    ours: tuple[str, ...] = FPGA_RESOURCES,
) -> Holders:
    """The containers that have each of our devices; `pods` are the known ones, by UID.

    `ours` are starts of the names of our resources.
    """
    # An allocation is in the checkpoint before its container starts. An entry of a pod that has
    # ended stays until the kubelet writes the file again (`holder_source` has that done), and
    # counts until then: only the kubelet knows whether a pod that it doesn't list is about to be
    # admitted, has ended, or was not read yet after a restart.
    unknown = PodRef("", "", "")
    named = ((pods.get(entry.pod_uid, unknown), entry) for entry in entries)
    held = (
        Held(pod.namespace, pod.name, entry.container, entry.resource, entry.device_ids)
        for pod, entry in named
    )
    return holders_of_pods(held, ours)


def holders_of_pods(active: Iterable[Held], ours: tuple[str, ...] = FPGA_RESOURCES) -> Holders:
    """The same from what PodResources lists."""
    holders: dict[tuple[str, str], set[Holder]] = {}
    for held in active:
        holder = Holder(held.namespace, held.pod, held.container)
        for device in held.device_ids if held.resource.startswith(ours) else ():
            holders.setdefault((held.resource, device), set()).add(holder)
    return {device: tuple(sorted(each)) for device, each in holders.items()}


def given_to_containers(
    entries: Iterable[CheckpointEntry], pods: Mapping[str, PodRef], ours: tuple[str, ...]
) -> frozenset[Given]:
    """The nodes of our devices in the kubelet's answers; arguments as of `holders_of_entries`.

    Answers that can't be read, or that have CDI names only, have none.
    """
    unknown = PodRef("", "", "")
    named = ((pods.get(entry.pod_uid, unknown), entry) for entry in entries)
    return frozenset(
        Given(
            str(Holder(pod.namespace, pod.name, entry.container)),
            entry.resource,
            tuple(sorted(entry.device_ids)),
            entry.nodes,
        )
        for pod, entry in named
        if entry.nodes and entry.resource.startswith(ours)
    )


def held_by_node(devices: Iterable[Device], given: Iterable[Given], host_root: str) -> HeldNodes:
    """The devices of which a container has a node that it was given with another device."""
    # A container keeps its nodes while it runs, and the kubelet gives it the same paths again at
    # its next start, whatever the kernel calls its devices by then.
    known = {(each.resource, each.id): each for each in devices if each.resource}
    named = {name_of(each): key for key, each in known.items()}
    users: dict[str, dict[frozenset[Hashable], Given]] = {}
    rightly: set[tuple[str, str, str]] = set()
    for each in given:
        if each.resource:
            keys = {(each.resource, key) for key in each.devices}
        else:
            keys = {named[name] for name in each.devices if name in named}
        own = frozenset(known[key].replica_key for key in keys & known.keys())
        for path in each.nodes:
            of_path = users.setdefault(path, {})
            of_path[own] = min(each, of_path.get(own, each))  # one of those that share a device
            rightly.update((path, *key) for key in keys)
    found: dict[tuple[str, str], tuple[Problem, ...]] = {}
    for (resource, key), device in known.items():
        others = [
            (path, user)
            for path in exclusive_paths(device, host_root) & users.keys()
            # Unless the device's own container was given it too.
            if (path, resource, key) not in rightly
            for own, user in users[path].items()
            if device.replica_key not in own
        ]
        if others:
            found[resource, key] = (_held(*min(others)),)
    return found


def _held(path: str, user: Given) -> Problem:
    ids = listing([*map(plain, user.devices)], most=8)
    of = user.resource and f" of {user.resource}"
    text = f"{plain(user.who, 300)} was given {plain(path)} for {ids}{of}"
    return Problem(HELD, f"{text}, and now it is this device's: delete the pod")


def pods_of_devices(
    entries: Iterable[CheckpointEntry], active: Iterable[Held]
) -> dict[str, PodRef]:
    """Pods by UID, from containers that have the same devices in checkpoint and PodResources."""
    listed = {(held.container, held.resource, held.device_ids): held for held in active}
    pods: dict[str, PodRef] = {}
    for entry in entries:
        held = listed.get((entry.container, entry.resource, entry.device_ids))
        if held is not None:
            pods[entry.pod_uid] = PodRef(held.namespace, held.pod, entry.pod_uid)
    return pods


def of_present_pods(
    entries: Iterable[CheckpointEntry], active: Iterable[Held], present: Container[str]
) -> tuple[CheckpointEntry, ...]:
    """The entries without those of pods that are gone; `present` are UIDs with a log folder."""
    entries = tuple(entries)
    listed = pods_of_devices(entries, active)
    # A pod keeps its log folder until it is deleted.
    return tuple(each for each in entries if each.pod_uid in present or each.pod_uid in listed)


def may_have_ended(
    entries: Iterable[CheckpointEntry],
    active: Iterable[Held],
    ours: tuple[str, ...] = FPGA_RESOURCES,
) -> bool:
    """Whether the checkpoint has devices of ours that PodResources does not list."""
    listed = {(held.container, held.resource, held.device_ids) for held in active}
    return any(
        entry.resource.startswith(ours)
        and (entry.container, entry.resource, entry.device_ids) not in listed
        for entry in entries
    )
