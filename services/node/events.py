"""The reasons of the plugin's Events, and what changed on a node between two scans."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from services.devices.model import Device, Inventory
from services.devices.resources import AdvertisedResources
from services.devices.types.build import NOT_MATCHED
from services.node.ledger import RECOVERING, Ledger
from services.process.text import count


class EventReason(StrEnum):
    """Reasons, fit for `kubectl get events --field-selector reason=…`; they never change."""

    kind: str
    """The kind of the object that such an Event is on."""
    warning: bool
    """Whether it is a `Warning`; others are `Normal`."""

    def __new__(cls, reason: str, kind: str, level: str) -> Self:
        """A reason, of Events on objects of a kind, at a level."""
        member = str.__new__(cls, reason)
        member._value_ = reason
        member.kind, member.warning = kind, level == "Warning"
        return member

    DEVICE_UNHEALTHY = "DeviceUnhealthy", "Node", "Warning"
    """A device has become unhealthy, or for other reasons than before."""
    DEVICE_HEALTHY = "DeviceHealthy", "Node", "Normal"
    """A device that was unhealthy is healthy again."""
    DEVICE_GONE = "DeviceGone", "Node", "Warning"
    """A device that was there is not."""
    CARD_READABLE = "CardReadable", "Node", "Normal"
    """A card that couldn't be read can be."""
    CARDS_FOUND = "CardsFound", "Node", "Normal"
    """What was wrong with the node as a whole is over."""
    ERRORS_CLEARED = "ErrorsCleared", "Node", "Normal"
    """Errors that a container left in a port were cleared."""
    ERRORS_NOT_CLEARED = "ErrorsNotCleared", "Node", "Warning"
    """They couldn't be: the port stays unhealthy."""
    MODE_CHANGED = "ModeChanged", "Node", "Normal"
    """The plugin starts in another mode than the one that was served last."""
    MODE_ANNOTATION_INVALID = "ModeAnnotationInvalid", "Node", "Warning"
    """The node's annotation names no mode: the one before is kept."""
    REGISTRATION_FAILED = "RegistrationFailed", "Node", "Warning"
    """The kubelet has refused a resource several times, or has not answered for some minutes."""
    REGISTERED = "Registered", "Node", "Normal"
    """A resource whose registration failed is registered."""
    SECOND_PLUGIN = "SecondPlugin", "Node", "Warning"
    """Another plugin serves this node: this one waits until it ends."""
    PROGRAMMED = "Programmed", "Pod", "Normal"
    """A function was programmed for the pod."""
    PROGRAMMING_FAILED = "ProgrammingFailed", "Pod", "Warning"
    """It couldn't be: the container doesn't start, and the kubelet tries again."""
    USER_CLOCK_SLOW = "UserClockSlow", "Pod", "Warning"
    """A port's user clock is below what the function asks for: the container starts."""
    HOOK_MISSING = "HookMissing", "Pod", "Warning"
    """The runtime would not call the OCI hook for a pod: no start."""
    DEVICE_NODE_CHANGED = "DeviceNodeChanged", "Pod", "Warning"
    """A device has another node than its container was allocated: no start; delete the pod."""


def event_reason(code: str) -> str:
    """The reason of Events about a problem of a node or card: `no-driver` is `NoDriver`."""
    return "".join(part.capitalize() for part in code.split("-"))


@dataclass(frozen=True, slots=True)
class Change:
    """A change, found once for the log and for Events."""

    what: str
    """Short, for the log."""
    subject: str
    """A device's id, `card` with its name, or `node`, with the reason of a problem."""
    message: str
    warning: bool = False
    event: str = ""
    """The reason of its Event; empty if only the log has it."""


def changes(before: Ledger, now: Ledger) -> Iterator[Change]:
    """Yield the changes between two ledgers: repairs, then of the node, of cards, of devices."""
    inventory = now.inventory or Inventory()
    yield from _repairs(before, now)
    yield from _inventory_changes(before.inventory or Inventory(), inventory)
    if now.offer is not before.offer:
        yield from _device_changes(before.offer, now.offer, inventory)


def _repairs(before: Ledger, now: Ledger) -> Iterator[Change]:
    """Repairs that were tried, each outcome once."""
    new = {each: tried for each, tried in now.latest.items() if before.tried.get(each) != tried}
    for (_, cleared, _), tried in new.items():
        port, errors = tried.part, f"errors of {tried.part}"
        if cleared and tried.error:
            event = EventReason.ERRORS_NOT_CLEARED
            yield Change("errors not cleared", errors, tried.error, warning=True, event=event)
        elif cleared:
            text = f"errors that a container left in {port} were cleared"
            yield Change("errors cleared", errors, text, event=EventReason.ERRORS_CLEARED)
        elif tried.error:
            yield Change("a disabled port stays disabled", port, tried.error, warning=True)
        elif tried.done:
            text = f"the driver of the card of {port} was rebound, since {port} was disabled"
            yield Change("driver rebound", port, text, warning=True)


def _inventory_changes(before: Inventory, now: Inventory) -> Iterator[Change]:
    """Problems of the node, such as a driver that isn't loaded, and of cards."""
    for reason in dict.fromkeys(each.code for each in now.problems):
        same = [each for each in now.problems if each.code == reason]
        if any(each not in before.problems for each in same):
            # One Event for all: of a subject, only the latest is sure to be written.
            text = "; ".join(each.text for each in same)
            event = event_reason(reason)
            yield Change("problem of the node", f"node {reason}", text, warning=True, event=event)
    if before.problems and not now.problems:
        text = f"what was wrong with the node is over; it has {count(len(now.cards), 'card')}"
        yield Change("problem of the node resolved", "node", text, event=EventReason.CARDS_FOUND)
    remarks = {(card.name, each) for card in before.cards for each in card.problems}
    failing = {card.name: card.failure.code for card in before.cards if card.failure}
    for card in now.cards:
        subject, failure = f"card {card.name}", card.failure
        for each in card.problems:
            if (card.name, each) not in remarks:
                yield Change("remark on a card", subject, each.text)
        if failure and failing.get(card.name) != failure.code:
            event = event_reason(failure.code)
            yield Change("card can't be read", subject, failure.text, warning=True, event=event)
        elif failure is None and card.name in failing:
            text = f"card {card.name} can be read again"
            yield Change("card readable", subject, text, event=EventReason.CARD_READABLE)


def _device_changes(
    before: AdvertisedResources, now: AdvertisedResources, inventory: Inventory
) -> Iterator[Change]:
    """Devices that came, went, or whose health changed."""
    old, new = _by_id(before), _by_id(now)
    failing = {card.name for card in inventory.cards if card.failure}  # these have their own Events
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
        f"{name} is {state}: {'; '.join(problem.text for problem in now.reasons)}",
        warning=True,
        event=EventReason.DEVICE_UNHEALTHY if has_events and reasons != {RECOVERING} else "",
    )


def _reasons(device: Device) -> frozenset[str]:
    return frozenset(problem.code for problem in device.reasons)


def _by_id(advertised: AdvertisedResources) -> Mapping[str, Device]:
    # Without those that are only like what a device type matches.
    others = (each for each in advertised.not_offered if _reasons(each) != {NOT_MATCHED})
    return {each.id: each for each in (*others, *advertised.devices())}
