"""Which devices a container should get when the kubelet leaves the choice to the plugin.

Distinct devices come before further replicas of one. The choice is greedy. One card after the other
is added, in this order of importance:

1. a NUMA node that is used already, then one that holds all the rest, and the tightest of these, or
   else the node with the most devices;
2. a card with devices that must be included, then a card that holds all the rest, or else the card
   with the most devices;
3. a card that is partly in use before one that is wholly free, which is kept for larger requests,
   and a tight fit before a loose one.

The number of NUMA nodes is always the smallest possible, and on a single node so is the number of
cards. Devices whose NUMA node is unknown count as being on one node of their own, devices without a
card as being on one card. Ties go to the lower ids, by number (`dfl-port.2` before `dfl-port.10`),
so the answer does not depend on the order in which the kubelet lists the ids.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from services.devices.model import Device

_NUMBER = re.compile(r"[0-9]+")
_DIGITS = 20
"""Numbers in ids are padded to this length, so that they sort by value."""


def prefer(
    devices: Mapping[str, Device], available: Iterable[str], must: Iterable[str], size: int
) -> list[str]:
    """Answer `GetPreferredAllocation` for one container: ids that must be included, then others.

    The answer is advice, so every request gets one. Duplicate ids count once. Unknown ids are not
    preferred, because `Allocate` would refuse them. Ids that must be included are included even
    if they are unknown; if there are more of them than requested, the first ones count.
    """
    kept = list(dict.fromkeys(must))[: max(0, size)]
    offered = {each for each in available if each in devices}.difference(kept)
    need = size - len(kept)
    if need <= 0:
        return kept
    distinct = _distinct(devices, offered, kept)
    if need >= len(distinct):
        chosen, offered = set(distinct), offered.difference(distinct)
    else:
        chosen, offered = set[str](), distinct
    need -= len(chosen)
    if need < len(offered):
        offered = set(_choose(_group_by_card(devices, offered, frozenset(kept)), need))
    return kept + sorted(chosen | offered, key=_by_number)


def _distinct(
    devices: Mapping[str, Device], offered: Collection[str], kept: Collection[str]
) -> set[str]:
    """Of the replicas of a device one at most, and none if another one must be included."""
    used = {_claims(devices[each]) for each in kept if each in devices}
    distinct: dict[object, str] = {}
    for key in sorted(offered, key=_by_number):
        claims = _claims(devices[key])
        if claims not in used:
            distinct.setdefault(claims, key)
    return set(distinct.values())


def _claims(device: Device) -> object:
    """What replicas of one device have in common, and no two devices."""
    return (device.type, device.claims) if device.type and device.claims else device.id


@dataclass(slots=True)
class _Card:
    """The devices of a card on one NUMA node."""

    node: int
    """-1 if unknown."""
    free: list[str] = field(default_factory=list)
    """Offered ids, lowest first."""
    kept: int = 0
    """Number of devices that must be included."""
    others: int = 0
    """Number of devices that are in use."""

    def rank(self, need: int) -> tuple[bool, bool, bool, int]:
        """The lower, the better among the cards of a node."""
        free = len(self.free)
        if free < need:
            return not self.kept, True, False, -free
        return not self.kept, False, not self.kept and not self.others, free


def _by_number(key: str) -> tuple[str, str]:
    return _NUMBER.sub(lambda number: number[0].zfill(_DIGITS), key), key


def _group_by_card(
    devices: Mapping[str, Device], offered: Collection[str], kept: Collection[str]
) -> list[_Card]:
    """The cards, in the order of their lowest ids."""
    cards: dict[tuple[int, str], _Card] = {}
    for key in sorted(devices, key=_by_number):
        device = devices[key]
        node = -1 if device.numa_node is None else device.numa_node
        card = cards.setdefault((node, device.card), _Card(node))
        if key in offered:
            card.free.append(key)
        elif key in kept:
            card.kept += 1
        else:
            card.others += 1
    return list(cards.values())


def _choose(cards: list[_Card], need: int) -> list[str]:
    """Ids on few NUMA nodes and few cards. There are at least as many as needed."""
    used = {card.node for card in cards if card.kept}
    chosen: list[str] = []
    left = [card for card in cards if card.free]
    while need > len(chosen):
        missing, nodes = need - len(chosen), Counter[int]()
        for card in left:
            nodes[card.node] += len(card.free)
        here = [card for card in left if card.node in used]
        if not here:
            node = min(nodes, key=lambda each: _rank_node(nodes[each], missing))
            used.add(node)
            here = [card for card in left if card.node == node]
        best = min(here, key=lambda card: card.rank(missing))
        left.remove(best)
        chosen += best.free[:missing]
    return chosen


def _rank_node(free: int, need: int) -> tuple[bool, int]:
    """The lower, the better: the tightest if it holds all, or else the one with most devices."""
    return free < need, -free if free < need else free
