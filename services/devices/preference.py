"""Which devices a container should get when the kubelet leaves the choice to the plugin.

Distinct devices come before further replicas of one. They are on as few NUMA nodes as possible, and
on each of these on as few cards; devices whose node is unknown count as being on one of their own.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

from services.devices.held import replicated
from services.devices.labels import by_number
from services.devices.model import Device

_GROUPS: tuple[Callable[[Device], object], ...] = (
    lambda device: device.numa_node,
    lambda device: device.card,
)
"""What devices should have in common, the most important first."""


def prefer(
    devices: Mapping[str, Device], available: Iterable[str], must: Iterable[str], size: int
) -> list[str]:
    """Answer `GetPreferredAllocation` for one container: ids that must be included, then others.

    Every request gets an answer, since it is advice. Ids that must be included are included even if
    they are unknown; if there are more of them than requested, the first ones count.
    """
    kept = list(dict.fromkeys(must))[: max(0, size)]
    # Unknown ids are not preferred: `Allocate` would refuse them.
    offered = {each for each in available if each in devices}.difference(kept)
    used = [devices[each] for each in kept if each in devices]
    distinct = _distinct(devices, offered, used)
    chosen = _nearest(devices, distinct, used, size - len(kept))
    replicas = sorted(offered.difference(distinct), key=by_number)
    chosen += _nearest(devices, replicas, used, size - len(kept) - len(chosen))
    return kept + sorted(chosen, key=by_number)


def _distinct(
    devices: Mapping[str, Device], offered: Collection[str], used: Collection[Device]
) -> list[str]:
    """Of the replicas of a device one at most, and none if another one must be included."""
    taken = set(map(replicated, used))
    distinct: dict[Hashable, str] = {}
    for key in sorted(offered, key=by_number):
        device = replicated(devices[key])
        if device not in taken:
            distinct.setdefault(device, key)
    return list(distinct.values())


def _nearest(
    devices: Mapping[str, Device],
    offered: Sequence[str],
    used: Collection[Device],
    need: int,
    groups: Sequence[Callable[[Device], object]] = _GROUPS,
) -> list[str]:
    """As many of the offered ids, lowest first, as are needed and there are, in few groups."""
    if not groups or need >= len(offered):
        return list(offered[:need])
    of, *finer = groups
    members: dict[object, list[str]] = {}
    for key in offered:
        members.setdefault(of(devices[key]), []).append(key)
    begun = {of(each) for each in used}
    chosen: list[str] = []
    while (missing := need - len(chosen)) > 0:
        # One group after the other is used up: first those of devices that must be included, then
        # the smallest that holds all the rest, or else the largest. Ties go to the lower ids, so
        # the order in which the kubelet lists them doesn't matter.
        ranks = {
            each: (each not in begun, len(ids) < missing, abs(len(ids) - missing))
            for each, ids in members.items()
        }
        best = min(members, key=ranks.__getitem__)
        chosen += _nearest(devices, members.pop(best), used, missing, finer)
    return chosen
