"""Health that doesn't flap: a device that was lost is trusted again only after a while.

A device that goes from healthy to unhealthy is unhealthy at once. Back again it is healthy only
after so many good scans in a row, so that the kubelet isn't told of every twitch and no container
is started on a card in between two of them. Until then it is unhealthy for the reason
`recovering`. One bad scan, and the count starts anew; there is no way to be lost for ever.

    healthy ── bad scan ──► lost ── good scan ──► recovering ── enough of them ──► healthy
                             ▲                         │
                             └──────── bad scan ───────┘

A device that hasn't been healthy yet has nothing to prove: one that comes while its driver is
still at work on it is healthy as soon as it is complete. A device that vanishes is forgotten, and
new when it comes back; so what is remembered is never more than what the node has.

Scans that follow close upon one another, as a burst of events makes them, count as one: otherwise
a card that flaps fast would be trusted the sooner for it.

The state is a value: `damp` gives the next one, and the caller hands it back with the next tree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from services.devices.model import Device, Problem
from services.devices.resources import AdvertisedResources

RECOVERING = "recovering"
"""Reason code of a device that is well again but not trusted yet."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How far a device is."""

    good: int = 0
    """Good scans in a row that counted."""
    since: float = 0.0
    """When the last of them was."""


@dataclass(frozen=True, slots=True)
class Health:
    """What is remembered of a tree's devices, by id."""

    trusted: frozenset[str] = frozenset()
    """Devices that were last told to be healthy."""
    recovering: Mapping[str, Recovery] = field(default_factory=dict)
    """Devices that were healthy once and aren't trusted now."""


@dataclass(frozen=True, slots=True)
class Damping:
    """How much it takes to be trusted again."""

    good_scans: int = 3
    """Good scans in a row, at least 1, which means no damping at all."""
    spacing: float = 0.0
    """Seconds between two scans for both to count."""

    def __post_init__(self) -> None:
        if self.good_scans < 1:
            raise ValueError(f"a device needs at least one good scan, not {self.good_scans}")


def damp(
    tree: AdvertisedResources, health: Health, damping: Damping, *, now: float
) -> tuple[AdvertisedResources, Health]:
    """The resources as the kubelet should see them.

    Args:
        tree: The tree as the cards are.
        health: What the last call gave; `Health()` before the first.
        damping: How much it takes.
        now: Seconds, from any beginning, that don't go back.

    Returns:
        The tree with devices made unhealthy that aren't trusted yet, its memory unchanged; and what
        the next call needs.
    """
    trusted: set[str] = set()
    recovering: dict[str, Recovery] = {}
    held_back: dict[str, Device] = {}
    for device in tree.devices():
        lost = health.recovering.get(device.id)
        if not device.healthy:
            if lost is not None or device.id in health.trusted:
                recovering[device.id] = Recovery()
            continue
        if lost is not None:
            lost = _counted(lost, damping, now)
        if lost is None or lost.good >= damping.good_scans:
            trusted.add(device.id)
        else:
            recovering[device.id] = lost
            held_back[device.id] = _held_back(device, damping)
    return _with(tree, held_back), Health(frozenset(trusted), recovering)


def _counted(lost: Recovery, damping: Damping, now: float) -> Recovery:
    """One more good scan, unless it came too soon after the last that counted."""
    too_soon = lost.good > 0 and 0 <= now - lost.since < damping.spacing
    return lost if too_soon else Recovery(lost.good + 1, now)


def _held_back(device: Device, damping: Damping) -> Device:
    text = (
        f"{device.id} was unhealthy a moment ago: it is trusted again after"
        f" {damping.good_scans} good scans in a row"
    )
    return replace(device, healthy=False, reasons=(Problem(RECOVERING, text),))


def _with(tree: AdvertisedResources, changed: Mapping[str, Device]) -> AdvertisedResources:
    if not changed:
        return tree
    resources = {
        resource: {key: changed.get(key, device) for key, device in devices.items()}
        for resource, devices in tree.resources.items()
    }
    return replace(tree, resources=resources)
