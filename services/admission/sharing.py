"""Which containers of a pod get the same device, and whether they want the same function in it.

How the kubelet's device manager reuses devices (`facts` measured on 1.36; `Allocate` in
``pkg/kubelet/cm/devicemanager/manager.go``): what plain init containers got forms a pool; every
later container takes from the pool before it gets new devices; other plain init containers give
back what they took, sidecars and containers keep it. Which of several pooled devices a container
takes isn't defined, so what could happen is treated as what will.

On the node, a container that starts is told by its devices. Two that have the same device but
want different functions can't be told apart, or would start on the other's function.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from services.pods.functions import Function
from services.pods.pod import Place


@dataclass(frozen=True, slots=True)
class Use:
    """What one container uses of the regions.

    Attributes:
        place: the container.
        units: how many of each resource it gets.
        wanted: of each resource, how many units must have which function; the others of its
            units may have any.
    """

    place: Place
    units: Mapping[str, int]
    wanted: Mapping[str, Counter[Function]]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two containers that may get one device and want different functions in it."""

    resource: str
    earlier: Place
    later: Place
    earlier_wants: Function
    later_wants: Function


@dataclass(slots=True)
class _Pool:
    """Devices of one resource that plain init containers left, and what may be in them."""

    size: int = 0
    functions: Counter[Function] = field(default_factory=Counter)
    last_user: dict[Function, Place] = field(default_factory=dict)


def conflicts(uses: Iterable[Use]) -> Iterator[Conflict]:
    """Yield the conflicts among the containers of a pod.

    Args:
        uses: in the order in which the kubelet starts the containers.
    """
    pools: dict[str, _Pool] = {}
    for use in uses:
        for resource, units in use.units.items():
            pool = pools.setdefault(resource, _Pool())
            wanted = use.wanted.get(resource, Counter())
            found = _conflict(resource, pool, use.place, units, wanted)
            if found:
                yield found
            _take(pool, use.place, units, wanted)


def _conflict(
    resource: str, pool: _Pool, place: Place, units: int, wanted: Counter[Function]
) -> Conflict | None:
    """Return a conflict if more devices may bring another function than may have any."""
    taken = min(units, pool.size)
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
                return Conflict(resource, pool.last_user[earlier], place, earlier, later)
    return None


def _take(pool: _Pool, place: Place, units: int, wanted: Counter[Function]) -> None:
    """Let a container take what it uses; a plain init container leaves that, and more, behind."""
    taken = min(units, pool.size)
    gives_back = place.init and not place.sidecar
    left: Counter[Function] = Counter()
    for function, there in pool.functions.items():
        surely_taken = max(0, taken - (pool.size - there))
        left[function] = there - surely_taken
        if gives_back:  # what it doesn't want stays where it may have anything
            left[function] += max(0, min(there, taken) - wanted[function])
    pool.size -= taken
    if gives_back:
        pool.size += units
        left += wanted
        pool.last_user.update(dict.fromkeys(wanted, place))
    pool.functions = +left
