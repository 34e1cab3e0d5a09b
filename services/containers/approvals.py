"""Approved starts of containers: these may start again while the API server is away."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from services.containers.identity import ContainerIdentity
from services.containers.wanted import WantedFunctions

MAX_APPROVALS: Final = 4096
"""A node has 110 pods by default; the oldest approvals go first."""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a container with devices of a resource."""

    resource: str
    devices: frozenset[str]


class Approvals:
    """The starts that were allowed since this plugin process began."""

    def __init__(self) -> None:
        # The oldest first. One for each container and resource: a newer one replaces it.
        self._approved: dict[tuple[ContainerIdentity, str], tuple[Start, WantedFunctions]] = {}

    def find(self, container: ContainerIdentity, start: Start) -> WantedFunctions | None:
        """The approval of exactly this start; None if there is none."""
        approved, wanted = self._approved.get((container, start.resource), (None, None))
        return wanted if approved == start else None

    def add(self, start: Start, wanted: Mapping[ContainerIdentity, WantedFunctions]) -> None:
        """Remember what each container that may be starting was allowed to have."""
        self.forget(wanted, start.resource)
        for container, each in wanted.items():
            self._approved[container, start.resource] = start, each
        for key in list(self._approved)[: max(0, len(self._approved) - MAX_APPROVALS)]:
            del self._approved[key]

    def forget(self, containers: Iterable[ContainerIdentity], resource: str) -> None:
        """Forget what containers were allowed to have of a resource."""
        for container in containers:
            self._approved.pop((container, resource), None)
