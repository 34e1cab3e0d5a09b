"""Which devices a container should get when the kubelet leaves the choice to the plugin.

The choice is greedy, in this order of importance:

1. few NUMA nodes: those of the devices that must be included, then the node that holds all the
   rest with the fewest cards, or else the node with the most devices;
2. few cards: those of the devices that must be included, then a card that holds all the rest, or
   else the card with the most devices;
3. whole cards are kept for larger requests: a card that is partly in use comes before one that is
   wholly free, and a tight fit before a loose one.

The number of NUMA nodes is always the smallest possible, and on a single node so is the number of
cards. Devices whose NUMA node is unknown count as being on one node of their own, devices without a
card as being on one card. Ties go to the lower ids, by number (`dfl-port.2` before `dfl-port.10`),
so the answer does not depend on the order in which the kubelet lists the ids.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from services.devices.model import Device

_NUMBER = re.compile(r"[0-9]+")
_DIGITS = 20
"""Numbers in ids are padded to this length, so that they sort by value."""


def prefer(
    devices: Mapping[str, Device], available: Iterable[str], must: Iterable[str], size: int
) -> list[str]:
    """Answer `GetPreferredAllocation` for one container.

    The answer is advice, so every request gets one. Duplicate ids count once. Unknown ids are not
    preferred, because `Allocate` would refuse them. Ids that must be included are included even
    if they are unknown; if there are more of them than requested, the first ones count.

    Args:
        devices: The resource's devices by id.
        available: Ids to choose from.
        must: Ids that must be in the answer.
        size: Number of ids requested.

    Returns:
        At most `size` ids: those that must be included, in their order, then the others.
    """
    kept = list(dict.fromkeys(must))[: max(0, size)]
    offered = {each for each in available if each in devices}.difference(kept)
    need = size - len(kept)
    if need <= 0:
        return kept
    if need < len(offered):
        offered = set(_choose(_group_by_card(devices, offered, frozenset(kept)), need))
    return kept + sorted(offered, key=_by_number)


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

    @property
    def is_whole(self) -> bool:
        return not self.kept and not self.others


_Picks = list[tuple[_Card, int]]
"""How many devices to use of each card."""


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


def _choose(cards: Sequence[_Card], need: int) -> list[str]:
    """Ids on few NUMA nodes. There are at least as many as needed."""
    by_node: dict[int, list[_Card]] = {}
    for card in cards:
        by_node.setdefault(card.node, []).append(card)
    in_use = {card.node for card in cards if card.kept}
    picks = _pick([card for node in in_use for card in by_node.pop(node)], need)
    candidates = list(by_node.values())
    while (missing := need - sum(count for _, count in picks)) > 0:
        best = min(candidates, key=lambda node: _rank_node(node, missing))
        candidates.remove(best)
        picks += _pick(best, missing)
    return [key for card, count in picks for key in card.free[:count]]


def _rank_node(cards: Sequence[_Card], need: int) -> tuple[int, ...]:
    """The lower, the better: few cards if it holds all, or else many devices."""
    free = sum(len(card.free) for card in cards)
    if free < need:
        return 1, -free
    picks = _pick(cards, need)
    return 0, len(picks), sum(card.is_whole for card, _ in picks), free


def _pick(cards: Iterable[_Card], need: int) -> _Picks:
    """As many devices as needed, or all there are, on few cards of a node."""
    picks: _Picks = []
    left = [card for card in cards if card.free]
    while left and need > 0:
        card = min(left, key=lambda each: _rank_card(each, need))
        left.remove(card)
        count = min(need, len(card.free))
        picks.append((card, count))
        need -= count
    return picks


def _rank_card(card: _Card, need: int) -> tuple[bool, bool, bool, int]:
    """The lower, the better."""
    free = len(card.free)
    if free >= need:
        return not card.kept, False, card.is_whole, free
    return not card.kept, True, False, -free
