"""What changed on a node between two scans: each change once, for the log and for Events."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from services.devices.damping import RECOVERING
from services.devices.model import Device, Inventory
from services.devices.resources import AdvertisedResources
from services.node.event_reasons import EventReason, event_reason


@dataclass(frozen=True, slots=True)
class Change:
    """A change."""

    what: str
    """Short, for the log."""
    subject: str
    """A device's id, `card` with its name, or `node`."""
    message: str
    warning: bool = False
    event: str = ""
    """The reason of its Event; empty if only the log has it."""


def inventory_changes(before: Inventory, now: Inventory) -> Iterator[Change]:
    """Problems of the node, such as a driver that isn't loaded, and of cards."""
    known = {problem.reason for problem in before.problems}
    for problem in now.problems:
        if problem.reason not in known:
            event = event_reason(problem.reason)
            yield Change("problem of the node", "node", problem.message, warning=True, event=event)
    if before.problems and not now.problems:
        text = f"cards are found again: {len(now.cards)}"
        yield Change("problem of the node resolved", "node", text, event=EventReason.CARDS_FOUND)
    remarks = {(card.name, each) for card in before.cards for each in card.problems}
    failing = {card.name: card.failure.reason for card in before.cards if card.failure}
    for card in now.cards:
        subject, failure = f"card {card.name}", card.failure
        for each in card.problems:
            if (card.name, each) not in remarks:
                yield Change("remark on a card", subject, each.message)
        if failure and failing.get(card.name) != failure.reason:
            event = event_reason(failure.reason)
            yield Change("card can't be read", subject, failure.message, warning=True, event=event)
        elif failure is None and card.name in failing:
            text = f"card {card.name} can be read again"
            yield Change("card readable", subject, text, event=EventReason.CARD_READABLE)


def device_changes(
    before: AdvertisedResources, now: AdvertisedResources, inventory: Inventory
) -> Iterator[Change]:
    """Devices that came, went, or whose health changed.

    Those of a card that can't be read have no Events: the card has one.
    """
    old, new = _by_id(before), _by_id(now)
    failing = {card.name for card in inventory.cards if card.failure}
    for key in sorted(old.keys() - new.keys()):
        text = f"{key} of {old[key].resource or 'no resource'} is gone"
        yield Change("device gone", key, text, warning=True, event=EventReason.DEVICE_GONE)
    for key, device in sorted(new.items()):
        yield from _of_device(old.get(key), device, has_events=device.card not in failing)


def _of_device(before: Device | None, now: Device, *, has_events: bool) -> Iterator[Change]:
    name = f"{now.id} of {now.resource}" if now.resource else now.id
    if before is not None and before.resource != now.resource:
        yield Change("device moved", now.id, f"{name} was of {before.resource or 'no resource'}")
    if now.healthy:
        if before is None:
            yield Change("device found", now.id, f"{name} is healthy")
        elif not before.healthy:
            event = EventReason.DEVICE_HEALTHY if has_events else ""
            yield Change("device healthy again", now.id, f"{name} is healthy again", event=event)
        return
    reasons = _reasons(now)
    if before is not None and reasons == _reasons(before):
        return
    state = "Unhealthy" if now.resource else "not offered"
    yield Change(
        "device unhealthy" if now.resource else "device can't be offered",
        now.id,
        f"{name} is {state}: {'; '.join(problem.message for problem in now.reasons)}",
        warning=True,
        event=EventReason.DEVICE_UNHEALTHY if has_events and reasons != {RECOVERING} else "",
    )


def _reasons(device: Device) -> frozenset[str]:
    return frozenset(problem.reason for problem in device.reasons)


def _by_id(advertised: AdvertisedResources) -> Mapping[str, Device]:
    return {each.id: each for each in (*advertised.not_offered, *advertised.devices())}
