"""Whose is a device? Put together from the two places where the kubelet says something of it.

PodResources lists the pods that are active, with the devices of their containers, but not those
of plain init containers. The checkpoint has all of them, but by the pod's UID alone, and those of
pods that have come to their end as well: it is only written when something else changes. The log
folders of pods, `<namespace>_<name>_<uid>`, tell which UID is which pod.

So an entry of the checkpoint counts if its pod is active. One whose UID has no folder belongs to a
pod that is just about to start, or to one that is gone: it counts as long as there is an active pod
without a folder that it might be. In doubt a device is somebody's.

A pod that was made anew under its old name (a StatefulSet's) has a new UID, and for a while two log
folders. The entries of the old one say of a container that it has other devices than PodResources
does; a container's devices never change, so what contradicts PodResources is of the old pod. So it
is where a kubelet lists pods that have ended: their containers have nothing any more.

To be read in this order: checkpoint, folders, PodResources. A pod that comes meanwhile is then
missed as a whole; read the other way round, one would have an entry and seem to be gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.kubelet.values import ActivePod, Entry

_FOLDER_PARTS = 3
"""None of the three can hold a `_`."""


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A container that has a device.

    Args:
        namespace: Its pod's namespace; empty if only the pod's UID is known.
        pod: Its pod's name; empty likewise.
        container: Its name.
    """

    namespace: str
    pod: str
    container: str


Holders = Mapping[tuple[str, str], tuple[Holder, ...]]
"""Containers that have a device, by its full resource name and id; never empty."""


def find_holders(
    entries: Iterable[Entry],
    folders: Iterable[str],
    active: Iterable[ActivePod] | None,
    *,
    cautious: bool = False,
) -> Holders:
    """Who has which device on this node.

    Args:
        entries: The checkpoint's.
        folders: Names of the pods' log folders.
        active: The pods that PodResources lists; None if it can't be asked: then all that have an
            entry count, also those that have come to their end.
        cautious: Whether a container that PodResources lists with nothing may have what the
            checkpoint says all the same: a kubelet that has just started may not have read it yet.

    Returns:
        By resource and id: several containers where they take turns, as an init container and the
        containers after it do.
    """
    entries, pods = list(entries), list(active or ())
    names = {(pod.namespace, pod.name) for pod in pods}
    places = _places(folders)
    past = _contradicted(entries, places, pods, cautious=cautious)
    nameless_may_be_alive = active is None or not names <= set(places.values())
    found: dict[tuple[str, str], set[Holder]] = {}
    for entry in entries:
        place = places.get(entry.pod_uid)
        alive = active is None or place in names if place else nameless_may_be_alive
        if alive and entry.pod_uid not in past:
            holder = Holder(*(place or ("", "")), entry.container)
            for key in entry.device_ids:
                found.setdefault((entry.resource, key), set()).add(holder)
    for pod in pods:
        for held in pod.held:
            holder = Holder(pod.namespace, pod.name, held.container)
            for key in held.device_ids:
                found.setdefault((held.resource, key), set()).add(holder)
    return {device: _told(each) for device, each in found.items()}


def _told(holders: set[Holder]) -> tuple[Holder, ...]:
    """Holders in their order, one of unknown pod only if it can't be one of the others."""
    named = {each.container for each in holders if each.pod}
    return tuple(sorted(each for each in holders if each.pod or each.container not in named))


def _contradicted(
    entries: Iterable[Entry],
    places: Mapping[str, tuple[str, str]],
    pods: Iterable[ActivePod],
    *,
    cautious: bool,
) -> set[str]:
    """UIDs whose entries don't agree with what PodResources says of the pod of that name."""
    held: dict[tuple[str, str, str, str], set[str]] = {}
    listed: set[tuple[str, str, str]] = set()
    for pod in pods:
        names = () if cautious and not pod.held else pod.containers
        listed.update((pod.namespace, pod.name, container) for container in names)
        for each in pod.held:
            listed.add((pod.namespace, pod.name, each.container))
            key = (pod.namespace, pod.name, each.container, each.resource)
            held.setdefault(key, set()).update(each.device_ids)
    past: set[str] = set()
    for entry in entries:
        who = (*places.get(entry.pod_uid, ("", "")), entry.container)
        if who in listed and held.get((*who, entry.resource), set()) != entry.device_ids:
            past.add(entry.pod_uid)
    return past


def _places(folders: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Namespace and name of pods by UID; a UID that several folders claim is nobody's."""
    places: dict[str, tuple[str, str]] = {}
    claimed: set[str] = set()
    for folder in folders:
        parts = folder.split("_")
        if len(parts) == _FOLDER_PARTS and all(parts):
            namespace, name, uid = parts
            if uid in places:
                claimed.add(uid)
            places[uid] = namespace, name
    return {uid: place for uid, place in places.items() if uid not in claimed}
