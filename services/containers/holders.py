"""Which containers have which device: the one answer, for people, metrics and decisions.

The kubelet's checkpoint has the answer: an allocation is written there before its container starts.
An entry of a pod that has ended stays until the kubelet writes the file again, and counts until
then: only the kubelet knows whether a pod that it doesn't list is about to be admitted, has ended,
or was not read yet after a restart. `services.containers.holder_source` has the file written again.

PodResources says which pods these are where log folders don't, and stands in for a missing file. It
lists no plain init containers.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from services.containers.identity import PodRef
from services.kubelet.values import ActivePod, CheckpointEntry
from services.names import DOMAIN, UNIT_RESOURCE

FPGA_RESOURCES: Final = (f"{DOMAIN}/af-", f"{DOMAIN}/region-", UNIT_RESOURCE)
"""Starts of the names of resources that FPGAs have."""


def served(domains: Iterable[str]) -> tuple[str, ...]:
    """Starts of the names of all resources that are served, with the domains of device types."""
    return (*FPGA_RESOURCES, *(f"{domain}/" for domain in domains))


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A container that has a device; namespace and pod are empty if only the pod's UID is known.

    For a DRA claim that has it, pod and container are empty.
    """

    namespace: str
    pod: str
    container: str
    claim: str = ""

    def __str__(self) -> str:
        if self.claim:
            return f"claim {self.namespace}/{self.claim}"
        return f"container {self.container}" + (self.pod and f" of pod {self.namespace}/{self.pod}")


Holders = Mapping[tuple[str, str], tuple[Holder, ...]]
"""Containers that have a device, by its full resource name and id; never empty.

There are several if they use a device in turn, as an init container and those after it do.
"""


def held_by_pods(holders: Holders) -> frozenset[tuple[str, str]]:
    """Resource and id of the devices that the kubelet has counted; those of DRA claims it doesn't.

    A claim may have a device as another resource, named by its function or its class.
    """
    return frozenset(key for key, users in holders.items() if not all(each.claim for each in users))


class HolderReader(Protocol):
    """Knows which containers have devices."""

    async def read(self) -> Holders:
        """Which containers have devices now.

        Raises:
            ExternalFailure: That is unknown.
        """

    async def current(self) -> Holders:
        """The same; if that is unknown, the holders as last read."""


def holders_of_entries(
    entries: Iterable[CheckpointEntry],
    pods: Mapping[str, PodRef],
    ours: tuple[str, ...] = FPGA_RESOURCES,
) -> Holders:
    """The containers that have each of our devices; `pods` are the known ones, by UID.

    `ours` are starts of the names of our resources.
    """
    holders: dict[tuple[str, str], set[Holder]] = {}
    for entry in entries:
        pod = pods.get(entry.pod_uid)
        holder = Holder(*((pod.namespace, pod.name) if pod else ("", "")), entry.container)
        for device in entry.device_ids if entry.resource.startswith(ours) else ():
            holders.setdefault((entry.resource, device), set()).add(holder)
    return {device: tuple(sorted(each)) for device, each in holders.items()}


def holders_of_pods(active: Iterable[ActivePod], ours: tuple[str, ...] = FPGA_RESOURCES) -> Holders:
    """The same from what PodResources lists."""
    entries: list[CheckpointEntry] = []
    pods: dict[str, PodRef] = {}
    for number, pod in enumerate(active):
        uid = str(number)  # PodResources has none
        pods[uid] = PodRef(pod.namespace, pod.name, uid)
        entries += (
            CheckpointEntry(uid, held.container, held.resource, held.device_ids)
            for held in pod.held
        )
    return holders_of_entries(entries, pods, ours)


def pods_of_devices(
    entries: Iterable[CheckpointEntry], active: Iterable[ActivePod]
) -> dict[str, PodRef]:
    """Pods by UID, from containers that have the same devices in checkpoint and PodResources."""
    listed = {
        (held.container, held.resource, held.device_ids): pod for pod in active for held in pod.held
    }
    pods: dict[str, PodRef] = {}
    for entry in entries:
        pod = listed.get((entry.container, entry.resource, entry.device_ids))
        if pod is not None:
            pods[entry.pod_uid] = PodRef(pod.namespace, pod.name, entry.pod_uid)
    return pods


def of_present_pods(
    entries: Iterable[CheckpointEntry], active: Iterable[ActivePod], present: Container[str]
) -> tuple[CheckpointEntry, ...]:
    """The entries without those of pods that are gone.

    These are neither listed by PodResources nor `present`, which has the UIDs of pods with a log
    folder: a pod keeps its folder until it is deleted.
    """
    listed = _listed(active)
    return tuple(
        entry
        for entry in entries
        if entry.pod_uid in present or (entry.container, entry.resource, entry.device_ids) in listed
    )


def _listed(active: Iterable[ActivePod]) -> set[tuple[str, str, frozenset[str]]]:
    return {(held.container, held.resource, held.device_ids) for pod in active for held in pod.held}


def may_have_ended(
    entries: Iterable[CheckpointEntry],
    active: Iterable[ActivePod],
    ours: tuple[str, ...] = FPGA_RESOURCES,
) -> bool:
    """Whether the checkpoint has devices of ours that PodResources does not list."""
    listed = _listed(active)
    return any(
        entry.resource.startswith(ours)
        and (entry.container, entry.resource, entry.device_ids) not in listed
        for entry in entries
    )
