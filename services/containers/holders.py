"""Which containers have which device, from the two places where the kubelet records it.

PodResources lists the active pods with the devices of their containers, but not those of plain init
containers. The checkpoint lists all containers, but by the UID of their pod, and also those of pods
that have ended: it is only written when something else changes. The log folders of pods, if they
are mounted, and equal devices in both lists say which UID is which pod. A pod that was found
earlier is remembered by the caller, so that its entries are known to be of a pod that has ended.

An entry of the checkpoint counts if its pod is active. An entry of an unknown UID belongs to a pod
that is about to start, to one in which only an init container has devices, or to one that has
ended: it counts while some active pod is of unknown UID. So a device in doubt counts as held.

A pod that was created again under its old name (by a StatefulSet) has a new UID, and for a while
two log folders. If the entries of a UID say that a container has other devices than PodResources
does, they are of the old pod, since a container's devices never change. The same applies where a
kubelet lists pods that have ended: their containers have no devices any more.

Read in this order: checkpoint, folders, PodResources. A pod that starts meanwhile is then missing
as a whole; read in the other order, one would have an entry and seem to have ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from services.containers.identity import PodRef, pods_of_devices, pods_of_folders
from services.kubelet.values import ActivePod, Entry


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A container that has a device; namespace and pod are empty if only the pod's UID is known."""

    namespace: str
    pod: str
    container: str


Holders = Mapping[tuple[str, str], tuple[Holder, ...]]
"""Containers that have a device, by its full resource name and id; never empty."""

_NONE: Mapping[str, PodRef] = MappingProxyType({})


def find_holders(
    entries: Iterable[Entry],
    folders: Iterable[str],
    active: Iterable[ActivePod] | None,
    *,
    known: Mapping[str, PodRef] = _NONE,
    cautious: bool = False,
) -> Holders:
    """The containers that have each device of this node.

    There are several if they use a device in turn, as an init container and those after it do.

    Args:
        entries: The checkpoint's.
        folders: Names of the pods' log folders.
        active: The pods that PodResources lists; None if it can't be asked: then all entries count,
            also those of pods that have ended.
        known: Pods by UID that were found earlier.
        cautious: Count a container that PodResources lists without devices, if the checkpoint says
            that it has some: a kubelet that has just started may not have read its checkpoint yet.
    """
    entries, listed = list(entries), list(active or ())
    names = {(pod.namespace, pod.name) for pod in listed}
    found_now = pods_of_devices(entries, listed) | pods_of_folders(folders)
    pods = {**known, **found_now}
    past = _contradicted(entries, pods, listed, cautious=cautious)
    unknown_may_be_active = active is None or not names <= {
        (pod.namespace, pod.name) for pod in found_now.values()
    }
    found: dict[tuple[str, str], set[Holder]] = {}
    for entry in entries:
        pod = pods.get(entry.pod_uid)
        if pod is None:
            counts = unknown_may_be_active
        else:
            counts = active is None or (pod.namespace, pod.name) in names
        if counts and entry.pod_uid not in past:
            holder = Holder(*((pod.namespace, pod.name) if pod else ("", "")), entry.container)
            for key in entry.device_ids:
                found.setdefault((entry.resource, key), set()).add(holder)
    for each in listed:
        for held in each.held:
            holder = Holder(each.namespace, each.name, held.container)
            for key in held.device_ids:
                found.setdefault((held.resource, key), set()).add(holder)
    return {device: _sorted(each) for device, each in found.items()}


def _sorted(holders: set[Holder]) -> tuple[Holder, ...]:
    """Holders in order; one of an unknown pod only if it can't be one of the others."""
    named = {each.container for each in holders if each.pod}
    return tuple(sorted(each for each in holders if each.pod or each.container not in named))


def _contradicted(
    entries: Iterable[Entry],
    pods: Mapping[str, PodRef],
    active: Iterable[ActivePod],
    *,
    cautious: bool,
) -> set[str]:
    """UIDs whose entries differ from what PodResources says of the pod of that name."""
    held: dict[tuple[str, str, str, str], set[str]] = {}
    listed: set[tuple[str, str, str]] = set()
    for pod in active:
        names = () if cautious and not pod.held else pod.containers
        listed.update((pod.namespace, pod.name, container) for container in names)
        for each in pod.held:
            listed.add((pod.namespace, pod.name, each.container))
            key = (pod.namespace, pod.name, each.container, each.resource)
            held.setdefault(key, set()).update(each.device_ids)
    past: set[str] = set()
    for entry in entries:
        named = pods.get(entry.pod_uid)
        if named is None:
            continue
        who = (named.namespace, named.name, entry.container)
        if who in listed and held.get((*who, entry.resource), set()) != entry.device_ids:
            past.add(entry.pod_uid)
    return past
