"""Reports what happens between this plugin and its kubelet as Events."""

from typing import Final

from services.kube.events import EventRecorder
from services.node.events import EventReason
from services.node.registration import NO_ANSWER

FAILURES: Final = 3
"""Registrations that fail in a row before an Event reports it."""

ABSENCES: Final = 12  # if no kubelet listens: one that restarts is away for some seconds


class PluginEvents:
    """Events of the plugin; `services.node.discovery` has those of its devices."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._failures: dict[str, int] = {}

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

    def _report(self, subject: str, reason: EventReason, message: str) -> None:
        self._events.record_on_node(subject, reason, message, warning=reason.warning)
