"""Reports what was done for claims as Events of their pods, as the plugin does.

An error of a call becomes an Event by the kubelet, `FailedPrepareDynamicResources`.
"""

from collections.abc import Callable

from dra.claims import AllocatedClaim
from services.kube.events import EventRecord, ObjectReference
from services.node.events import EventReason
from services.node.regions import Readiness
from services.node.start_gate import MAX_MESSAGE
from services.process.text import plain


class ClaimEvents:
    """Records Events of the pods of claims."""

    def __init__(self, record_event: Callable[[EventRecord], None]) -> None:
        self._record_event = record_event

    def report(self, claim: AllocatedClaim, done: Readiness | Exception) -> None:
        """Record what was done for a claim, or why that failed."""
        if isinstance(done, Exception):
            self._record(claim, EventReason.PROGRAMMING_FAILED, str(done))
            return
        for each in done.programmed:
            text = f"AFU {each.function} programmed into {each.region} ({each.port})"
            self._record(claim, EventReason.PROGRAMMED, text)
        for text in done.slow_clocks:
            self._record(claim, EventReason.USER_CLOCK_SLOW, text)

    def _record(self, claim: AllocatedClaim, reason: EventReason, message: str) -> None:
        pod = claim.pod
        if pod is not None:
            about = ObjectReference("Pod", pod.name, pod.namespace, pod.uid)
            text = plain(f"{claim.ref}: {message}", MAX_MESSAGE)
            self._record_event(EventRecord(about, text, str(reason), text, reason.warning))
