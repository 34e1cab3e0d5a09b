"""What a container gets: the preferred devices, and the answer to `Allocate` for those chosen.

Distinct devices are preferred to further replicas of one. They are on as few NUMA nodes as
possible, and on each of these on as few cards; devices whose node is unknown count as being on one
of their own.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from services.devices.model import Device, DeviceNode
from services.names import by_number
from services.process.errors import NotAllowed

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
    taken = {each.replica_key for each in used}
    distinct: dict[Hashable, str] = {}
    for key in sorted(offered, key=by_number):
        device = devices[key].replica_key
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


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """The answer to one container's request."""

    envs: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[DeviceNode, ...] = ()
    cdi_devices: tuple[str, ...] = ()


def allocate(
    devices: Mapping[str, Device],
    ids: Sequence[str],
    *,
    cdi: Collection[str] = (),
    hooked: bool = False,
) -> ContainerAllocation:
    """Return nodes and variables for the devices that a container was allocated.

    Args:
        devices: The resource's devices by id.
        ids: The ids that the kubelet chose, in its order; one that is there twice counts once.
        cdi: Ids of devices that the runtime knows by their CDI names.
        hooked: Whether an OCI hook programs what the devices need.
    """
    wanted = list(dict.fromkeys(ids))
    unknown = [each for each in wanted if each not in devices]
    if unknown:
        raise NotAllowed(
            f"no device {', '.join(map(repr, unknown))}: the resource has"
            f" {', '.join(devices) or 'no devices'} now"
        )
    # Health plays no part: the kubelet has chosen, and a refusal would fail the pod for good.
    chosen = [devices[each] for each in wanted]
    require_distinct_paths("a container", chosen)
    # The CDI file holds both the nodes and the hook, so a runtime that doesn't call the hook makes
    # no nodes either. Without a hook, runtimes without CDI need them; one with CDI makes each once.
    nodes = () if hooked else [node for device in chosen for node in device.nodes]
    return ContainerAllocation(
        envs=_variables(chosen),
        nodes=tuple(dict.fromkeys(nodes)),
        cdi_devices=tuple(device.cdi for device in chosen if hooked or device.id in cdi),
    )


def require_distinct_paths(who: str, devices: Iterable[Device]) -> None:
    """Raise `NotAllowed` if two nodes of devices would have one path in a container."""
    known: dict[str, tuple[str, str]] = {}
    for device in devices:
        for node in device.nodes:
            place, other = known.setdefault(node.container_path, (node.place, device.id))
            if place != node.place:
                raise NotAllowed(
                    f"{who} can't have {other} and {device.id} together: /dev/{place} and"
                    f" /dev/{node.place} would both be {node.container_path} in the container;"
                    " request one"
                )


def _variables(chosen: Sequence[Device]) -> dict[str, str]:
    """The variables of all devices: one value for each in their order, empty where it has none."""
    of_devices = [dict(device.envs) for device in chosen]
    names = dict.fromkeys(name for each in of_devices for name in each)
    listed = {name: ",".join(each.get(name, "") for each in of_devices) for name in names}
    return listed | {name: value for device in chosen for name, value in device.fixed_envs}
