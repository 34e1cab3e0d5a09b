"""Why a pod is refused: stable codes for metrics and audit, sentences for people."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.pods.pod import ContainerRef
from services.pods.reasons import ReviewReason
from services.process.problem import Problem
from services.process.text import numbered, plain

MAX_REFUSALS = 8
"""How many problems of one pod are reported; others are found once these are fixed."""

MAX_MESSAGE = 2000
"""Characters of all problems of one pod together."""


@dataclass(slots=True)
class Refusals:
    """Collects the problems of a pod."""

    listed: list[Problem] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether there are `MAX_REFUSALS`, so that no more are looked for."""
        return len(self.listed) >= MAX_REFUSALS

    def add(self, reason: ReviewReason, ref: ContainerRef | None, message: str) -> None:
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
