"""Reports what happens on this node as Kubernetes Events of the node.

The log has everything; Events are for people who look at the node with kubectl. A problem is
reported when it starts and when it ends, and a failing card is reported instead of its devices.
`services.kube.events` decides how often Events are written.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from plugin.node_mode import ModeChoice
from plugin.registration import NO_ANSWER
from services.devices.damping import RECOVERING
from services.devices.model import Device, Inventory
from services.devices.resources import AdvertisedResources
from services.kube.events import EventRecord, node_reference
from services.node.event_reasons import EventReason, event_reason
from services.process.text import plain

FAILURES: Final = 3
"""Registrations that fail in a row before an Event reports it."""

ABSENCES: Final = 12
"""The same if no kubelet listens: one that restarts is away for some seconds."""

_MAX: Final = 800
"""Characters of a text from elsewhere."""


class NodeEvents:
    """Reports what happens in this process as Events of the node with a name."""

    def __init__(self, name: str, record_event: Callable[[EventRecord], None]) -> None:
        self._about = node_reference(name)
        self._record_event = record_event
        self._inventory = Inventory()
        self._advertised: AdvertisedResources | None = None
        self._failures: dict[str, int] = {}

    def on_scan(self, inventory: Inventory | None, advertised: AdvertisedResources) -> None:
        """Reports what a scan found and what is offered of it, if that has changed."""
        now = inventory or Inventory()
        before = self._advertised
        if advertised is before and now == self._inventory:
            return
        if before is not None and before.memory.mode is not advertised.memory.mode:
            before = None  # devices of another mode, which have not vanished
        changes = (
            *_of_node(self._inventory, now),
            *_of_cards(self._inventory, now),
            *_of_devices(before, advertised, now),
        )
        for subject, reason, message in changes:
            self._report(subject, reason, message)
        self._inventory, self._advertised = now, advertised

    def mode_changed(self, before: ModeChoice, now: ModeChoice) -> None:
        """The node's annotation has changed the mode, or names none."""
        if now.error:
            self._report("mode", EventReason.MODE_ANNOTATION_INVALID, now.error)
        else:
            why = "its annotation says so" if now.source == "annotation" else "it has no annotation"
            change = f"it was {before.mode}" if now.mode is not before.mode else "as before"
            self._report("mode", EventReason.MODE_CHANGED, f"mode {now.mode}: {why}; {change}")

    def second_plugin(self, reason: str) -> None:
        """This plugin waits, since it is the second one on the node."""
        self._report("plugin", EventReason.SECOND_PLUGIN, f"{reason}: this one waits until it ends")

    def registered(self, resource: str, error: str) -> None:
        """A registration has failed with an error, or succeeded without one."""
        if not error:
            if self._failures.pop(resource, 0) >= FAILURES:
                self._report(resource, EventReason.REGISTERED, f"{resource} is registered")
            return
        count = self._failures[resource] = self._failures.get(resource, 0) + 1
        if count == (ABSENCES if error.startswith(NO_ANSWER) else FAILURES):
            self._report(resource, EventReason.REGISTRATION_FAILED, f"{resource}: {error}")

    def forget(self, resource: str) -> None:
        """A resource has ended."""
        self._failures.pop(resource, None)

    def errors_cleared(self, port: str, error: str) -> None:
        """The errors that a container left in a port were cleared; or why they couldn't be."""
        if error:
            self._report(f"errors of {port}", EventReason.ERRORS_NOT_CLEARED, error)
        else:
            text = f"errors that a container left in {port} were cleared"
            self._report(f"errors of {port}", EventReason.ERRORS_CLEARED, text)

    def _report(self, subject: str, reason: "_Reason", message: str) -> None:
        """Writes an Event; a reason that is made from a code is a warning."""
        warning = reason.warning if isinstance(reason, EventReason) else True
        self._record_event(
            EventRecord(self._about, subject, str(reason), plain(message, _MAX), warning)
        )


_Reason = EventReason | str
_Change = tuple[str, _Reason, str]


def _of_node(before: Inventory, now: Inventory) -> Iterator[_Change]:
    """Problems of the node rather than of a card, such as a driver that isn't loaded."""
    known = {problem.reason for problem in before.problems}
    for problem in now.problems:
        if problem.reason not in known:
            yield "node", event_reason(problem.reason), problem.message
    if before.problems and not now.problems:
        yield "node", EventReason.CARDS_FOUND, f"cards are found again: {len(now.cards)}"


def _of_cards(before: Inventory, now: Inventory) -> Iterator[_Change]:
    """Cards that can't be read, such as one whose reads hang."""
    failing = {card.name: card.failure.reason for card in before.cards if card.failure}
    for card in now.cards:
        subject = f"card {card.name}"
        if card.failure and failing.get(card.name) != card.failure.reason:
            yield subject, event_reason(card.failure.reason), card.failure.message
        elif card.failure is None and card.name in failing:
            yield subject, EventReason.CARD_READABLE, f"card {card.name} can be read again"


def _of_devices(
    before: AdvertisedResources | None, now: AdvertisedResources, inventory: Inventory
) -> Iterator[_Change]:
    old, new = _by_id(before), _by_id(now)
    silent = {card.name for card in inventory.cards if card.failure}
    for key in sorted(old.keys() - new.keys()):
        text = f"{key} of {old[key].resource or 'no resource'} is gone"
        yield key, EventReason.DEVICE_GONE, text
    for key, device in sorted(new.items()):
        if device.card not in silent:
            yield from _of_device(old.get(key), device)


def _of_device(before: Device | None, now: Device) -> Iterator[_Change]:
    was, reasons = _reasons(before), _reasons(now)
    what = f"{now.id} of {now.resource}" if now.resource else now.id
    if now.healthy:
        if before is not None and not before.healthy:
            yield now.id, EventReason.DEVICE_HEALTHY, f"{what} is healthy again"
    elif reasons not in (was, {RECOVERING}):
        why = "; ".join(problem.message for problem in now.reasons)
        state = "Unhealthy" if now.resource else "not offered"
        yield now.id, EventReason.DEVICE_UNHEALTHY, f"{what} is {state}: {why}"


def _reasons(device: Device | None) -> frozenset[str]:
    return frozenset(problem.reason for problem in device.reasons) if device else frozenset()


def _by_id(advertised: AdvertisedResources | None) -> Mapping[str, Device]:
    if advertised is None:
        return {}
    return {each.id: each for each in (*advertised.not_offered, *advertised.devices())}
