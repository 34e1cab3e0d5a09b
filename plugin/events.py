"""What the cluster's people are told about this node, as Kubernetes Events on it.

The log has everything; an Event is for who looks at the node with kubectl and wonders. So each is
told when it becomes the case and when it is over, not as long as it lasts, and a card that fails
speaks for its devices. How often anything is written is for `services.kube.events` to decide.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from plugin.mode import Choice
from services.devices.damping import RECOVERING
from services.devices.model import Device, Inventory
from services.devices.resources import AdvertisedResources
from services.kube.events import EventRecord, node_reference
from services.node.event_reasons import EventReason, event_reason
from services.process.text import plain

FAILURES: Final = 3
"""Registrations that fail in a row before it is worth an Event."""

ABSENCES: Final = 12
"""The same where nobody listens: a kubelet that restarts is away for some seconds."""

_MAX: Final = 800
"""Characters of a text from elsewhere."""


class NodeEvents:
    """Turns what happens in this process into Events on its node.

    Args:
        name: The node's.
        tell: Takes what is to be written.
    """

    def __init__(self, name: str, tell: Callable[[EventRecord], None] = lambda _: None) -> None:
        self._about = node_reference(name)
        self._tell = tell
        self._inventory = Inventory()
        self._tree: AdvertisedResources | None = None
        self._failures: dict[str, int] = {}

    def seen(self, inventory: Inventory | None, tree: AdvertisedResources) -> None:
        """Takes what a look at the cards came to.

        Args:
            inventory: What was found.
            tree: What is offered of it.
        """
        now = inventory or Inventory()
        before = self._tree
        if tree is before and now == self._inventory:
            return
        if before is not None and before.memory.mode is not tree.memory.mode:
            before = None  # devices of another mode, which have not vanished
        self._say_all(_of_node(self._inventory, now))
        self._say_all(_of_cards(self._inventory, now))
        self._say_all(_of_devices(before, tree, now))
        self._inventory, self._tree = now, tree

    def mode(self, before: Choice, now: Choice) -> None:
        """The node's annotation has changed what counts, or isn't understood."""
        if now.trouble:
            self._say("mode", EventReason.MODE_ANNOTATION_INVALID, now.trouble)
        else:
            why = "its annotation says so" if now.source == "annotation" else "it has no annotation"
            change = f"it was {before.mode}" if now.mode is not before.mode else "as before"
            self._say("mode", EventReason.MODE_CHANGED, f"mode {now.mode}: {why}; {change}")

    def waits(self, why: str) -> None:
        """This plugin is the second one on the node."""
        self._say("plugin", EventReason.SECOND_PLUGIN, f"{why}: this one waits until it ends")

    def registered(self, resource: str, trouble: str) -> None:
        """A registration has succeeded, or failed for a reason.

        Args:
            resource: Full resource name.
            trouble: Why it failed; empty if it didn't.
        """
        if not trouble:
            if self._failures.pop(resource, 0) >= FAILURES:
                self._say(resource, EventReason.REGISTERED, f"{resource} is registered")
            return
        count = self._failures[resource] = self._failures.get(resource, 0) + 1
        if count == (ABSENCES if trouble.startswith("nobody answers") else FAILURES):
            self._say(resource, EventReason.REGISTRATION_FAILED, f"{resource}: {trouble}")

    def forget(self, resource: str) -> None:
        """A resource has ended."""
        self._failures.pop(resource, None)

    def cleared(self, port: str, trouble: str) -> None:
        """The errors that a container left in a port were cleared, or couldn't be.

        Args:
            port: Its name.
            trouble: Why they couldn't be; empty if they were.
        """
        if trouble:
            self._say(f"errors of {port}", EventReason.ERRORS_NOT_CLEARED, trouble)
        else:
            text = f"errors that a container left in {port} were cleared"
            self._say(f"errors of {port}", EventReason.ERRORS_CLEARED, text)

    def _say(self, subject: str, reason: "_Reason", message: str) -> None:
        """Tells of something; a reason that is spelled from a code is a warning."""
        warning = reason.warning if isinstance(reason, EventReason) else True
        self._tell(EventRecord(self._about, subject, str(reason), plain(message, _MAX), warning))

    def _say_all(self, said: "Iterator[_Said]") -> None:
        for subject, reason, message in said:
            self._say(subject, reason, message)


_Reason = EventReason | str
_Said = tuple[str, _Reason, str]


def _of_node(before: Inventory, now: Inventory) -> Iterator[_Said]:
    """What is wrong with the node rather than with a card: a driver that isn't loaded, say."""
    known = {problem.reason for problem in before.problems}
    for problem in now.problems:
        if problem.reason not in known:
            yield "node", event_reason(problem.reason), problem.message
    if before.problems and not now.problems:
        yield "node", EventReason.CARDS_FOUND, f"cards are found again: {len(now.cards)}"


def _of_cards(before: Inventory, now: Inventory) -> Iterator[_Said]:
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
) -> Iterator[_Said]:
    old, new = _by_id(before), _by_id(now)
    silent = {card.name for card in inventory.cards if card.failure}
    for key in sorted(old.keys() - new.keys()):
        text = f"{key} of {old[key].resource or 'no resource'} is gone"
        yield key, EventReason.DEVICE_GONE, text
    for key, device in sorted(new.items()):
        if device.card not in silent:
            yield from _of_device(old.get(key), device)


def _of_device(before: Device | None, now: Device) -> Iterator[_Said]:
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


def _by_id(tree: AdvertisedResources | None) -> Mapping[str, Device]:
    return {each.id: each for each in (*tree.not_offered, *tree.devices())} if tree else {}
