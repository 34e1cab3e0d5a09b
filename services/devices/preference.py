"""Which devices a container should get, where the kubelet leaves the choice to the plugin.

Of all sets that hold what they must and are as large as asked, the best one is that with, in this
order of importance,

1. the fewest NUMA nodes: a container's devices belong together;
2. the fewest cards;
3. the fewest cards that were wholly free, that is, all of whose devices of this resource were
   offered and none had to be included: whole cards are for bigger requests;
4. the fewest offered devices left over on the cards that it uses (best fit);
5. the fewest offered devices left over on the NUMA nodes that it uses (best fit again);
6. the fewest cards with anything left over, so that what is left over is in one place.

Devices whose NUMA node is unknown count as being on one node of their own, devices without a card
as being on one card, and a card whose devices are on several nodes as one card a node. Between
sets that are equally good the lower ids win, by number (`dfl-port.2` before `dfl-port.10`), so that
the answer doesn't depend on the order in which the kubelet lists them.

The first five concern only which cards are used, and add up card by card, so the best choice of
cards for each number of devices follows from the best choices for smaller numbers: a knapsack,
solved exactly, node by node, in time that grows with the number of different kinds of cards times
the number of devices asked for. The sixth is left to how the devices are taken from those cards.
No other choice of cards would do better there: had a card that was added as many devices as are
left over in all, the others would have been enough without it; so one such card holds all of them.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from services.devices.model import Device

_NUMBER = re.compile(r"[0-9]+")
_DIGITS = 20
"""To which numbers in ids are filled up, so that they sort by value."""


def prefer(
    devices: Mapping[str, Device], available: Iterable[str], must: Iterable[str], size: int
) -> list[str]:
    """The answer to `GetPreferredAllocation` for one container.

    It is an advice: what it leaves out, the kubelet fills up by itself. So whatever is asked, the
    answer is what can be answered: ids that are there twice count once; ids offered that aren't
    the resource's (any more) are not preferred, since `Allocate` would refuse them; ids that must
    be included are, whether offered or known or not; fewer devices than asked for are all given;
    of more ids that must be included than asked for, the first ones are.

    Args:
        devices: The resource's devices by id.
        available: Ids to choose from.
        must: Ids that have to be in the answer.
        size: How many ids are asked for.

    Returns:
        At most `size` ids, each once: those that must be included as they came, then the others.
    """
    kept = list(dict.fromkeys(must))[: max(0, size)]
    offered = {each for each in available if each in devices}.difference(kept)
    need = size - len(kept)
    if need <= 0:
        return kept
    if need < len(offered):
        places = _places(devices, offered, frozenset(kept))
        offered = set(_take(_choose(places, need), need))
    return kept + sorted(offered, key=_by_number)


@dataclass(slots=True)
class _Place:
    """A card as far as it is on one NUMA node.

    Args:
        node: The NUMA node; -1 for unknown.
        free: Ids offered there, lowest first.
        kept: How many ids there must be included.
        others: How many devices there are neither.
    """

    node: int
    free: list[str] = field(default_factory=list)
    kept: int = 0
    others: int = 0

    @property
    def kind(self) -> tuple[int, bool]:
        """What tells it from others of its node in what choosing it costs and gives."""
        return len(self.free), not self.others


def _by_number(key: str) -> tuple[str, str]:
    return _NUMBER.sub(lambda number: number[0].zfill(_DIGITS), key), key


def _places(
    devices: Mapping[str, Device], offered: Collection[str], kept: Collection[str]
) -> list[_Place]:
    """Cards and nodes, in the order of their lowest ids."""
    places: dict[tuple[int, str], _Place] = {}
    for key in sorted(devices, key=_by_number):
        device = devices[key]
        node = -1 if device.numa_node is None else device.numa_node
        place = places.setdefault((node, device.card), _Place(node))
        if key in offered:
            place.free.append(key)
        elif key in kept:
            place.kept += 1
        else:
            place.others += 1
    return list(places.values())


def _take(places: Sequence[_Place], need: int) -> list[str]:
    """So many ids of these places, leaving what is over on as few of them as can be."""
    over = sum(len(place.free) for place in places) - need
    taken: list[str] = []
    by_size = sorted(places, key=lambda place: len(place.free))
    for place in reversed(by_size):
        spared = min(over, len(place.free))
        over -= spared
        taken += place.free[: len(place.free) - spared]
    return taken


# The knapsack ------------------------------------------------------------------------------------


def _choose(places: Sequence[_Place], need: int) -> list[_Place]:
    """The places to use, by the first five points of the objective.

    Those with something that must be included are used in any case. The others can be told apart
    only by their node, how many devices they give, and whether they are wholly free.
    """
    chosen = [place for place in places if place.kept]
    need -= sum(len(place.free) for place in chosen)
    if need <= 0:
        return chosen
    candidates: dict[tuple[int, int, bool], list[_Place]] = {}
    sizes: Counter[int] = Counter()
    for place in places:
        sizes[place.node] += len(place.free)
        if place.free and not place.kept:
            candidates.setdefault((place.node, *place.kind), []).append(place)
    opened = {place.node for place in chosen}
    knapsack = _Knapsack(need, candidates, sizes, opened)
    for kind, count in knapsack.best().items():
        chosen += candidates[kind][:count]
    return chosen


_Kind = tuple[int, int, bool]
"""Node, devices that it gives, and whether it is wholly free."""


@dataclass(frozen=True, slots=True)
class _Step:
    """So many places of one kind, taken together or not.

    Args:
        kind: Their kind.
        count: How many they are.
        taken: For each number of devices, whether its cheapest way takes them.
    """

    kind: _Kind
    count: int
    taken: bytes

    @property
    def weight(self) -> int:
        return self.count * self.kind[1]


class _Knapsack:
    """Cheapest ways to get each number of devices from whole places.

    `costs[n]` is what exactly `n` devices cost: nodes, cards, wholly free cards and devices on
    those nodes, as the digits of one number, so that the order is that of the objective and costs
    add up. No way is worth a look that gives more than the need and the largest place together:
    it could do without one of its places.

    Args:
        need: How many devices there must be; at most as many as there are.
        candidates: Places by kind.
        sizes: How many devices are offered on each node.
        opened: Nodes that are used in any case.
    """

    def __init__(
        self,
        need: int,
        candidates: Mapping[_Kind, Sequence[_Place]],
        sizes: Mapping[int, int],
        opened: Collection[int],
    ) -> None:
        self._need = need
        self._base = sum(sizes.values()) + len(sizes) + 1
        limit = need + max(gives for _, gives, _ in candidates)
        self._never = self._base**5
        self._costs = [0] + [self._never] * (limit - 1)
        self._nodes: list[tuple[bytes, list[_Step]]] = []
        by_node: dict[int, list[_Kind]] = {}
        for kind in candidates:
            by_node.setdefault(kind[0], []).append(kind)
        for node, kinds in by_node.items():
            counts = {kind: len(candidates[kind]) for kind in kinds}
            self._add_node(counts, 0 if node in opened else self._base**3 + sizes[node])

    def best(self) -> dict[_Kind, int]:
        """How many places of each kind the best choice takes."""
        total = min(
            range(self._need, len(self._costs)),
            key=lambda n: (self._costs[n] // self._base, n, self._costs[n]),
        )
        chosen: Counter[_Kind] = Counter()
        for used, steps in reversed(self._nodes):
            if not used[total]:
                continue
            for step in reversed(steps):
                if step.taken[total]:
                    chosen[step.kind] += step.count
                    total -= step.weight
        return chosen

    def _add_node(self, counts: Mapping[_Kind, int], opening: int) -> None:
        without = self._costs
        self._costs = [cost + opening for cost in without]
        steps = [
            self._add(kind, count) for kind, total in counts.items() for count in _powers(total)
        ]
        used = bytes(map(int.__lt__, self._costs, without))
        self._costs = list(map(min, without, self._costs))
        self._nodes.append((used, steps))

    def _add(self, kind: _Kind, count: int) -> _Step:
        _, gives, whole = kind
        cost = count * (self._base**2 + self._base * whole)
        before = self._costs
        shifted = [self._never] * min(count * gives, len(before))
        shifted += [each + cost for each in before[: len(before) - len(shifted)]]
        self._costs = list(map(min, before, shifted))
        return _Step(kind, count, bytes(map(int.__lt__, shifted, before)))


def _powers(total: int) -> Iterable[int]:
    """Numbers of which some sum up to any number up to the total: 1, 2, 4, … and the rest."""
    power = 1
    while total > 0:
        yield min(power, total)
        total -= power
        power *= 2
