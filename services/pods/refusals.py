"""Why a pod is refused: stable codes for metrics and audit, sentences for people."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from services.pods.pod import Place
from services.process.text import numbered, plain

MAX_REFUSALS = 8
"""How many problems of one pod are named; the rest is found after these are mended."""

MAX_MESSAGE = 2000
"""How many characters all problems of one pod may take together."""


class RefusalReason(StrEnum):
    """What kind of thing is wrong. The values are metric labels: they never change."""

    UNKNOWN_NAME = "unknown-name"
    """The namespace doesn't map a name that the pod asks for."""
    UNUSABLE_MAPPING = "unusable-mapping"
    """A mapping of that name is there, and can't be used."""
    UNMAPPED_RESOURCE = "unmapped-resource"
    """A physical name is asked for that no mapping of the namespace stands for."""
    INVALID_QUANTITY = "invalid-quantity"
    """A number of units that is no whole number."""
    REQUESTS_DIFFER = "requests-differ"
    """Requests and limits of a container differ."""
    TOO_MANY_UNITS = "too-many-units"
    """More units than `--max-units`."""
    MIXED_MODES = "mixed-modes"
    """Resources of different modes in one container, while a node runs one mode."""
    ENV_NOT_ALLOWED = "env-not-allowed"
    """Variables that only the webhook may set, with values that no mapping allows."""
    SHARED_DEVICE = "shared-device"
    """Containers would share a device and want different functions in it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that is wrong with a pod.

    Attributes:
        reason: its code.
        container: the name of the container it is about, empty if it is about the pod.
        message: a sentence that names the container.
    """

    reason: RefusalReason
    container: str
    message: str


@dataclass(slots=True)
class Refusals:
    """Collects what is wrong with a pod, up to `MAX_REFUSALS`.

    Attributes:
        found: what is wrong so far.
        full: whether that is enough to stop looking.
    """

    found: list[Refusal] = field(default_factory=list)
    full: bool = False

    def add(self, reason: RefusalReason, place: Place, message: str) -> None:
        """Note a problem of a container; `message` goes on after ``container "c0" …``."""
        if not self.full:
            text = f"{label(place)} {message}"
            self.found.append(Refusal(reason, place.container.name, text))
            self.full = len(self.found) >= MAX_REFUSALS


def label(place: Place) -> str:
    """Return how a message calls a container: ``init container "setup"``."""
    kind = "init container" if place.init else "container"
    name = place.container.name
    return f'{kind} "{plain(name)}"' if name else f"{kind} at {place.path}"


def summary(refusals: Iterable[Refusal]) -> str:
    """Return one text for all refusals, that reads well after ``denied the request: ``."""
    return numbered((refusal.message for refusal in refusals), limit=MAX_MESSAGE)
