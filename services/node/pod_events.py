"""Reports what happens to a pod that is starting as its Events."""

from services.containers.holders import PodRef
from services.kube.events import MAX_MESSAGE, EventRecord, EventRecorder, ObjectReference
from services.node.events import EventReason
from services.node.regions import Readiness
from services.process.errors import AccelbindError
from services.process.text import plain


def record_on_pod(
    events: EventRecorder, pod: PodRef | None, reason: EventReason, text: str
) -> None:
    """Record an Event of a pod, if it is known."""
    if pod is not None:
        about = ObjectReference("Pod", pod.name, pod.namespace, pod.uid)
        message = plain(text, MAX_MESSAGE)
        events.record(EventRecord(about, text, str(reason), message, reason.warning))


def record_programming(
    events: EventRecorder, pod: PodRef | None, who: str, done: Readiness | AccelbindError
) -> None:
    """Report what was programmed for a pod, or why that failed; `who` is its container or claim."""
    if isinstance(done, AccelbindError):
        happened = [(EventReason.PROGRAMMING_FAILED, str(done))]
    else:
        texts = [
            f"AFU {at.function} programmed into {at.region} ({at.port})" for at in done.programmed
        ]
        happened = [(EventReason.PROGRAMMED, text) for text in texts]
        happened += [(EventReason.USER_CLOCK_SLOW, sentence) for sentence in done.slow_clocks]
    for reason, text in happened:
        record_on_pod(events, pod, reason, f"{who}: {text}")
