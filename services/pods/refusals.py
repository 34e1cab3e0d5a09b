"""Why a pod is refused: stable codes for metrics and audit, sentences for people."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from services.pods.pod import ContainerRef
from services.process.problem import Problem
from services.process.text import numbered, plain

MAX_REFUSALS = 8
"""How many problems of one pod are reported; others are found once these are fixed."""

MAX_MESSAGE = 2000
"""Characters of all problems of one pod together."""


class RefusalReason(StrEnum):
    """Why a pod is refused. The values are metric labels: they never change."""

    UNKNOWN_NAME = "unknown-name"
    """The pod requests a name that its namespace doesn't map."""
    UNUSABLE_MAPPING = "unusable-mapping"
    """The mapping of a requested name can't be used."""
    UNMAPPED_RESOURCE = "unmapped-resource"
    """The pod requests a physical name that no mapping of its namespace resolves to."""
    INVALID_QUANTITY = "invalid-quantity"
    """A quantity isn't a whole number of units."""
    REQUESTS_DIFFER = "requests-differ"
    """Requests and limits of a container differ."""
    TOO_MANY_UNITS = "too-many-units"
    """More units than `--max-units`."""
    POD_RESOURCES = "pod-resources"
    """The pod requests an accelerator in its own resources, not in those of a container."""
    MIXED_MODES = "mixed-modes"
    """A container requests resources of different modes, but a node runs one mode."""
    ENV_NOT_ALLOWED = "env-not-allowed"
    """A container sets variables that only accelbind may set to values that no mapping allows."""
    TOO_MUCH_ADDED = "too-much-added"
    """The mappings of all names that the pod requests would add too much to it."""
    MAPPINGS_CONFLICT = "mappings-conflict"
    """The mappings of two names, or a mapping and the pod, contradict each other."""
    SHARED_DEVICE = "shared-device"
    """Containers that would share a device need different functions in it."""
    GUARDED_RESOURCE = "guarded-resource"
    """A container has more of a guarded resource than its names stand for."""
    GUARDED_SELECTOR = "guarded-selector"
    """The pod lacks the node selector of a name that its guarded resources come from."""


@dataclass(slots=True)
class Refusals:
    """Collects the problems of a pod."""

    listed: list[Problem] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether there are `MAX_REFUSALS`, so that no more are looked for."""
        return len(self.listed) >= MAX_REFUSALS

    def add(self, reason: RefusalReason, ref: ContainerRef | None, message: str) -> None:
        """Add a problem of a container, whose name goes before the message, or of the whole pod."""
        if not self.full:
            text = f"{label(ref) if ref else 'the pod'}: {message}"
            self.listed.append(Problem(reason, text, ref.container.name if ref else ""))


def label(ref: ContainerRef) -> str:
    """Return the name of a container in messages: ``init container "setup"``."""
    kind = "init container" if ref.init else "container"
    name = ref.container.name
    return f'{kind} "{plain(name)}"' if name else f"{kind} at {ref.path}"


def summary(refusals: Iterable[Problem]) -> str:
    """Return one text for all problems; it follows ``denied the request: ``."""
    return numbered((refusal.text for refusal in refusals), limit=MAX_MESSAGE)
