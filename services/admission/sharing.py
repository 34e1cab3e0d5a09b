"""Which containers of a pod share a device, and whether they need the same function in it.

The kubelet's device manager reuses devices within a pod (measured on 1.36; `Allocate` in
``pkg/kubelet/cm/devicemanager/manager.go``): devices of plain init containers form a pool. Every
later container takes devices from the pool before it gets new ones. Two containers with the same
device but different functions are refused, or one would start on the function of the other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from services.mappings.model import Function
from services.pods.pod import ContainerRef


@dataclass(frozen=True, slots=True)
class RegionUse:
    """The regions that one container uses."""

    ref: ContainerRef
    units: Mapping[str, int]
    """How many units of each resource it gets."""
    wanted: Mapping[str, Counter[Function]]
    """How many units of each resource must have which function; its other units may have any."""


@dataclass(frozen=True, slots=True)
class SharingConflict:
    """Two containers that may share a device and need different functions in it."""

    resource: str
    earlier: ContainerRef
    later: ContainerRef
    earlier_wants: Function
    later_wants: Function


@dataclass(slots=True)
class _Pool:
    """Devices of one resource that plain init containers returned, and what may be in them."""

    size: int = 0
    functions: Counter[Function] = field(default_factory=Counter)
    last_user: dict[Function, ContainerRef] = field(default_factory=dict)


def conflicts(uses: Iterable[RegionUse]) -> Iterator[SharingConflict]:
    """Yield the conflicts among the containers of a pod; `uses` is in the kubelet's start order."""
    pools: dict[str, _Pool] = {}
    for use in uses:
        for resource, units in use.units.items():
            pool = pools.setdefault(resource, _Pool())
            wanted = use.wanted.get(resource, Counter())
            conflict = _conflict(resource, pool, use.ref, units, wanted)
            if conflict:
                yield conflict
            _use_devices(pool, use.ref, units, wanted)


def _conflict(
    resource: str, pool: _Pool, ref: ContainerRef, units: int, wanted: Counter[Function]
) -> SharingConflict | None:
    """Return a conflict if more devices may hold another function than may hold any."""
    taken = min(units, pool.size)
    # Which of several pooled devices it takes is undefined, so every possible conflict counts.
    unwanted = {
        function: min(there, taken) - wanted[function]
        for function, there in pool.functions.items()
        if min(there, taken) > wanted[function]
    }
    anything = units - wanted.total()
    if sum(unwanted.values()) <= anything:
        return None
    for earlier in unwanted:
        for later in wanted:
            if earlier != later:
                return SharingConflict(resource, pool.last_user[earlier], ref, earlier, later)
    return None


def _use_devices(pool: _Pool, ref: ContainerRef, units: int, wanted: Counter[Function]) -> None:
    """Take the devices of a container from the pool; a plain init container returns them."""
    taken = min(units, pool.size)
    # A sidecar and a container keep theirs while the others run.
    returns = ref.init and not ref.sidecar
    left: Counter[Function] = Counter()
    for function, there in pool.functions.items():
        surely_taken = max(0, taken - (pool.size - there))
        left[function] = there - surely_taken
        if returns:  # functions that it doesn't need may stay in its other units
            left[function] += max(0, min(there, taken) - wanted[function])
    pool.size -= taken
    if returns:
        pool.size += units
        left += wanted
        pool.last_user.update(dict.fromkeys(wanted, ref))
    pool.functions = +left
