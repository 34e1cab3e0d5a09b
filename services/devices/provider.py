"""Who finds devices on a node, and how the devices of several providers become one offer.

FPGAs come first: what they offer, no device type can have.
"""

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from services.devices.labels import dns_label, dra_name
from services.devices.model import Card, Device, Problem
from services.devices.resources import AdvertisedResources
from services.process.text import listing

CLAIMED_BY_FPGA: Final = "claimed-by-fpga"
CLAIMED_TWICE: Final = "claimed-twice"
DUPLICATE: Final = "duplicate-name"
HELD: Final = "held-as-other-resource"

Allocated: TypeAlias = Collection[tuple[str, str]]
"""Devices that containers have: full resource name and id."""

_REPLICA: Final = re.compile(r"-r\d+$")
"""What distinguishes replicas."""
_SUFFIX: Final = re.compile(rf"{_REPLICA.pattern}|(?<=\.\d)-\d+$")
"""The same, and in mode bdf what distinguishes the ports of a function: `5e:00.0-1`."""
_NUMBER: Final = re.compile(r"\d+:\d+")
"""The claim of a device node, as against that of a PCI function or USB port."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a provider found."""

    devices: tuple[Device, ...] = ()
    """In a stable order; those that can't be offered have reasons and no resource."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with the node or the configuration rather than with a device."""
    cards: tuple[Card, ...] = ()
    """The cards that the devices are parts of, if they are FPGAs."""


class Provider(Protocol):
    """Finds the devices of one kind on a node."""

    name: str
    """For messages and keys of blocking calls; unique on the node."""

    @property
    def subsystems(self) -> frozenset[str]:
        """Whose uevents ask for a scan."""

    async def devices(self) -> Found:
        """The devices now.

        Raises:
            HardwareError: Nothing can be found out; what was known before stays.
        """


def merge(founds: Sequence[Found], allocated: Allocated = ()) -> AdvertisedResources:
    """The offer of a node: each device once, and none that two claim.

    A device that a container has as another resource, or under an id of earlier, is unhealthy.
    """
    devices = [device for found in founds for device in found.devices]
    claimants, held = _claimants(devices), held_by_id(allocated)
    current = {(device.resource, device.id) for device in devices}
    resources: dict[str, dict[str, Device]] = {}
    not_offered: dict[tuple[str, str], Device] = {}
    names: set[str] = set()
    for device in devices:
        problem = _conflict(device, claimants) if device.resource else None
        # An id and a name in DRA are each one device's.
        own = {device.id, dra_name(device.type, device.id)} if device.type else {device.id}
        if problem is None and device.resource and not names.isdisjoint(own):
            what = f"type {device.type}" if device.type else device.card
            problem = Problem(DUPLICATE, f"{device.id} of {what} has the name of another device")
        if problem is not None:
            device = replace(device, resource="", reasons=(problem,))  # noqa: PLW2901 - the same
        if device.resource:
            names |= own
            resources.setdefault(device.resource, {})[device.id] = _unless_held(
                device, held, current
            )
        else:  # a device that two types claim is shown once
            not_offered.setdefault((device.id, str(device.reasons)), device)
    return AdvertisedResources(resources, tuple(not_offered.values()))


def held_by_id(allocated: Allocated) -> dict[str, set[tuple[str, str]]]:
    """What containers have (resource and id), by the ids of devices and parts."""
    held: dict[str, set[tuple[str, str]]] = {}
    for resource, key in allocated:
        for each in {key, _SUFFIX.sub("", key)}:
            held.setdefault(each, set()).add((resource, key))
    return held


def _unless_held(
    device: Device,
    held: Mapping[str, set[tuple[str, str]]],
    current: set[tuple[str, str]],
) -> Device:
    """The same, unhealthy if a container has it, or a part of it, as another resource."""
    others = {
        (key, resource)
        for each in possible_ids(device) & held.keys()
        for resource, key in held[each]
        # An id that the resource no longer has is one of another number of replicas.
        if resource != device.resource or (resource, key) not in current
    }
    problems = [
        Problem(HELD, f"a container has {key} as {resource}") for key, resource in sorted(others)
    ]
    if not problems:
        return device
    return replace(device, reasons=(*device.reasons, *problems))


def possible_ids(device: Device) -> set[str]:
    """The ids by which a container may have a device or a part of it, whatever the mode."""
    claims = [each for each in device.claims if not is_number(each)]
    return {device.id, whole_id(device.id), *claims, *map(dns_label, claims)}


def is_number(claim: str) -> bool:
    """Whether what a device claims is the number of a device node, `238:0`."""
    return bool(_NUMBER.fullmatch(claim))


def whole_id(key: str) -> str:
    """The id of a device without what distinguishes its replicas."""
    return _REPLICA.sub("", key)


def _claimants(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """The devices to be offered that claim something, by what they claim."""
    claimants: dict[str, list[Device]] = {}
    for device in devices:
        for claim in device.claims if device.resource else ():
            claimants.setdefault(claim, []).append(device)
    return claimants


def _conflict(device: Device, claimants: Mapping[str, Sequence[Device]]) -> Problem | None:
    """Why a device is not offered, if others claim what it claims."""
    if not device.type:
        return None
    for claim in sorted(device.claims):
        others = [each for each in claimants[claim] if replicated(each) != replicated(device)]
        fpga = next((each for each in others if not each.type), None)
        if fpga is not None:
            text = (
                f"{claim} belongs to the FPGA device {fpga.id} ({fpga.resource}), so type"
                f" {device.type} can't offer it"
            )
            return Problem(CLAIMED_BY_FPGA, text)
        if others:  # the kubelet counts each resource by itself, and would hand it out twice
            both = sorted({f"{each.card} of type {each.type}" for each in (device, *others)})
            text = f"{claim} is part of {listing(both)}, so none of them is offered"
            return Problem(CLAIMED_TWICE, text)
    return None


def replicated(device: Device) -> Hashable:
    """What replicas of one device have in common, and no two devices."""
    if not (device.type and device.claims):
        return device.id
    # With the card: one node that a type finds under two names is no replica.
    return device.type, device.card, device.claims
