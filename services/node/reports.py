"""Reports what happens to a node's cards: in the log, and as Kubernetes Events of the node.

The log has everything; Events are for people who use kubectl. A problem is reported when it starts
and when it ends. `services.kube.events` decides how often Events are written.
"""

from collections.abc import Callable
from typing import Final

import structlog

from services.kube.events import EventRecord, node_reference
from services.node.events import Change, EventReason
from services.process.text import plain

_MAX: Final = 800
"""Characters of a text from elsewhere."""

log = structlog.get_logger(component="node")


class NodeReports:
    """Reports what happens in this process as Events of the node with a name."""

    def __init__(self, name: str, record_event: Callable[[EventRecord], None]) -> None:
        self._about = node_reference(name)
        self._record_event = record_event

    def changed(self, change: Change) -> None:
        """Log a change, and record its Event."""
        write_log = log.warning if change.warning else log.info
        write_log(change.what, subject=change.subject, message=change.message)
        if change.event:
            self._record(change.subject, change.event, change.message, warning=change.warning)

    def errors_cleared(self, port: str, error: str) -> None:
        """The errors that a container left in a port were cleared; or why they couldn't be."""
        if error:
            self.report(f"errors of {port}", EventReason.ERRORS_NOT_CLEARED, error)
        else:
            text = f"errors that a container left in {port} were cleared"
            self.report(f"errors of {port}", EventReason.ERRORS_CLEARED, text)

    def report(self, subject: str, reason: EventReason, message: str) -> None:
        """Record an Event about something on the node."""
        self._record(subject, reason, message, warning=reason.warning)

    def _record(self, subject: str, reason: str, message: str, *, warning: bool) -> None:
        self._record_event(
            EventRecord(self._about, subject, str(reason), plain(message, _MAX), warning)
        )
