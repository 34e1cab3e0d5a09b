"""Health that doesn't flap: a device that was unhealthy is healthy again only after a while.

A device goes unhealthy at once. It is healthy again only after a number of good scans in a row, so
that the kubelet starts no container between two short faults.

    healthy ── bad scan ──► lost ── good scan ──► recovering ── enough of them ──► healthy
                             ▲                         │
                             └──────── bad scan ───────┘

A device that vanishes is forgotten, and new when it comes back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from services.devices.model import Device, Problem
from services.devices.resources import AdvertisedResources

RECOVERING = "recovering"
"""Reason code of a device that reads well again but is not trusted yet."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Good scans in a row that count, and when the last of them was."""

    good: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Health:
    """What is remembered of the devices, by id."""

    trusted: frozenset[str] = frozenset()
    recovering: Mapping[str, Recovery] = field(default_factory=dict)
    """Devices that were healthy before and aren't trusted now."""


@dataclass(frozen=True, slots=True)
class Damping:
    """How much it takes to be healthy again."""

    good_scans: int = 3
    """Good scans in a row, at least 1, which means no damping."""
    spacing: float = 0.0
    """Seconds between two scans for both to count."""


def damp(
    advertised: AdvertisedResources, health: Health, damping: Damping, *, now: float
) -> tuple[AdvertisedResources, Health]:
    """The resources as the kubelet should see them, and what the next call needs.

    `health` is `Health()` before the first call, `now` seconds of a clock that doesn't go back.
    """
    trusted: set[str] = set()
    recovering: dict[str, Recovery] = {}
    held_back: dict[str, Device] = {}
    for device in advertised.devices():
        lost = health.recovering.get(device.id)
        if not device.healthy:
            if lost is not None or device.id in health.trusted:
                recovering[device.id] = Recovery()
            continue
        if lost is not None:
            lost = _counted(lost, damping, now)
        # One that was never healthy has nothing to prove: its driver may still have been at work on
        # it when it appeared.
        if lost is None or lost.good >= damping.good_scans:
            trusted.add(device.id)
        else:
            recovering[device.id] = lost
            held_back[device.id] = _held_back(device, damping)
    return _with(advertised, held_back), Health(frozenset(trusted), recovering)


def _counted(lost: Recovery, damping: Damping, now: float) -> Recovery:
    """One more good scan, unless it came too soon after the last that counted."""
    # As after a burst of events: otherwise a card that flaps fast would recover sooner.
    too_soon = lost.good > 0 and 0 <= now - lost.since < damping.spacing
    return lost if too_soon else Recovery(lost.good + 1, now)


def _held_back(device: Device, damping: Damping) -> Device:
    text = (
        f"{device.id} was unhealthy a moment ago: it is healthy again after"
        f" {damping.good_scans} good scans in a row"
    )
    return replace(device, reasons=(Problem(RECOVERING, text),))


def _with(advertised: AdvertisedResources, changed: Mapping[str, Device]) -> AdvertisedResources:
    if not changed:
        return advertised
    resources = {
        resource: {key: changed.get(key, device) for key, device in devices.items()}
        for resource, devices in advertised.resources.items()
    }
    return replace(advertised, resources=resources)
