"""The reasons of the Events that a plugin writes: each with what it is on, and when it comes.

Node problems and cards that can't be read have reasons of their own, which are spelled from their
codes by `event_reason`.
"""

from enum import StrEnum


class EventReason(StrEnum):
    """Reasons, fit for `kubectl get events --field-selector reason=…`; they never change."""

    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    """A device has become unhealthy, or for other reasons than before."""
    DEVICE_HEALTHY = "DeviceHealthy"
    """A device that was unhealthy is healthy again."""
    DEVICE_GONE = "DeviceGone"
    """A device that was there is not."""
    CARD_READABLE = "CardReadable"
    """A card that couldn't be read can be."""
    CARDS_FOUND = "CardsFound"
    """What was wrong with the node as a whole is over."""
    ERRORS_CLEARED = "ErrorsCleared"
    """Errors that a container left in a port were cleared."""
    ERRORS_NOT_CLEARED = "ErrorsNotCleared"
    """They couldn't be: the port stays unhealthy."""
    MODE_CHANGED = "ModeChanged"
    """The node's annotation has changed the mode, or was taken away."""
    MODE_ANNOTATION_INVALID = "ModeAnnotationInvalid"
    """The node's annotation names no mode: the one before is kept."""
    REGISTRATION_FAILED = "RegistrationFailed"
    """The kubelet has refused a resource several times, or has not answered for a minute."""
    REGISTERED = "Registered"
    """A resource whose registration failed is registered."""
    SECOND_PLUGIN = "SecondPlugin"
    """Another plugin serves this node: this one waits until it ends."""
    PROGRAMMED = "Programmed"
    """A function was programmed for the pod."""
    PROGRAMMING_FAILED = "ProgrammingFailed"
    """It couldn't be: the container doesn't start, and the kubelet tries again."""
    HOOK_MISSING = "HookMissing"
    """The runtime did not call the OCI hook for a pod, or would not find it: no start."""

    @property
    def warning(self) -> bool:
        """Whether an Event of this reason is a `Warning`; others are `Normal`."""
        return self in _WARNINGS

    @property
    def kind(self) -> str:
        """The kind of the object that it is on."""
        return "Pod" if self in _ON_PODS else "Node"


_ON_PODS = frozenset(
    {EventReason.PROGRAMMED, EventReason.PROGRAMMING_FAILED, EventReason.HOOK_MISSING}
)
_WARNINGS = frozenset(
    {
        EventReason.DEVICE_UNHEALTHY,
        EventReason.DEVICE_GONE,
        EventReason.ERRORS_NOT_CLEARED,
        EventReason.MODE_ANNOTATION_INVALID,
        EventReason.REGISTRATION_FAILED,
        EventReason.SECOND_PLUGIN,
        EventReason.PROGRAMMING_FAILED,
        EventReason.HOOK_MISSING,
    }
)


def event_reason(code: str) -> str:
    """The reason code of a problem as Events have it: `no-driver` is `NoDriver`."""
    return "".join(part.capitalize() for part in code.split("-"))
