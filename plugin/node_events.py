"""Reports what happens on this node: in the log, and as Kubernetes Events of the node.

The log has everything; Events are for people who use kubectl. A problem is reported when it starts
and when it ends. `services.kube.events` decides how often Events are written.
"""

from collections.abc import Callable
from typing import Final

import structlog

from plugin.node_mode import ModeChoice
from plugin.registration import NO_ANSWER
from services.devices.model import Inventory, PluginMode
from services.devices.resources import AdvertisedResources, nothing_advertised
from services.kube.events import EventRecord, node_reference
from services.node.events import EventReason, device_changes, inventory_changes
from services.process.text import plain

FAILURES: Final = 3
"""Registrations that fail in a row before an Event reports it."""

ABSENCES: Final = 12
"""The same if no kubelet listens: one that restarts is away for some seconds."""

_MAX: Final = 800
"""Characters of a text from elsewhere."""

log = structlog.get_logger(component="plugin")


class NodeEvents:
    """Reports what happens in this process as Events of the node with a name."""

    def __init__(self, name: str, record_event: Callable[[EventRecord], None]) -> None:
        self._about = node_reference(name)
        self._record_event = record_event
        self._inventory = Inventory()
        self._advertised = nothing_advertised(PluginMode.AF)
        self._failures: dict[str, int] = {}

    def on_scan(self, inventory: Inventory | None, advertised: AdvertisedResources) -> None:
        """Log and report what a scan found and what is offered of it, if that has changed."""
        now, before = inventory or Inventory(), self._advertised
        if before.memory.mode is not advertised.memory.mode:
            before = nothing_advertised(advertised.memory.mode)  # its devices have not vanished
        changes = [*inventory_changes(self._inventory, now)]
        if advertised is not before:
            changes += device_changes(before, advertised, now)
        for change in changes:
            write_log = log.warning if change.warning else log.info
            write_log(change.what, subject=change.subject, message=change.message)
            if change.event:
                self._record(change.subject, change.event, change.message, warning=change.warning)
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

    def _report(self, subject: str, reason: EventReason, message: str) -> None:
        self._record(subject, reason, message, warning=reason.warning)

    def _record(self, subject: str, reason: str, message: str, *, warning: bool) -> None:
        self._record_event(
            EventRecord(self._about, subject, str(reason), plain(message, _MAX), warning)
        )
