"""Devices that claim the same: which of them is offered.

FPGAs come first: what they offer, no device type can have.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from services.devices.held import replicated
from services.devices.model import Device
from services.process.problem import Problem
from services.process.text import listing

CLAIMED_BY_FPGA: Final = "claimed-by-fpga"
CLAIMED_TWICE: Final = "claimed-twice"
DUPLICATE: Final = "duplicate-name"


def claimants_of(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """The devices to be offered that claim something, by what they claim."""
    claimants: dict[str, list[Device]] = {}
    for device in devices:
        for claim in device.claims if device.resource else ():
            claimants.setdefault(claim, []).append(device)
    return claimants


def conflict(device: Device, claimants: Mapping[str, Sequence[Device]]) -> Problem | None:
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
