"""May a container have what it was given? The node checks the mappings of its namespace again.

The webhook has checked them before. This check finds pods that bypassed the webhook, and mappings
that were deleted since. Containers whose start was approved may start again while the API server is
away.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from services.containers.holders import ContainerIdentity
from services.containers.wanted import WantedFunctions
from services.devices.model import PluginMode
from services.mappings.index import NamespaceMappings
from services.mappings.kinds import ACCELERATOR_FUNCTION, FPGA_REGION
from services.mappings.model import Mode
from services.names import DOMAIN
from services.process.errors import NotMapped
from services.process.text import plain


class Enforce(StrEnum):
    """When the node checks mappings, as `--enforce-mappings` has it."""

    AUTO = "auto"
    """In modes that give containers the right to program."""
    ALWAYS = "always"
    """In mode af too."""
    NEVER = "never"


def is_enforced(enforce: Enforce, mode: PluginMode) -> bool:
    """Whether a node in this mode checks mappings."""
    if enforce is Enforce.NEVER:
        return False
    # Regions give containers the right to program: functions, or the regions as a whole.
    return mode.has_regions or (enforce is Enforce.ALWAYS and mode.names_functions)


def require_mapped_functions(wanted: WantedFunctions, mappings: NamespaceMappings) -> None:
    """Refuse a container that wants functions that its namespace doesn't map in mode region."""
    for function in wanted.functions:
        if (wanted.interface_id, function) not in mappings.functions:
            raise NotMapped(
                f"{wanted.who} wants AFU {plain(function, 48)} in interface {wanted.interface_id},"
                f" and no {ACCELERATOR_FUNCTION} of mode region in namespace"
                f" {plain(mappings.namespace)} maps that: request a name that is mapped, or"
                " ask an administrator for a mapping"
            )


def require_mapped_resource(
    who: str, resource: str, mappings: NamespaceMappings, mode: PluginMode
) -> None:
    """Refuse a resource that the namespace doesn't map, in mode af or regiondevel."""
    if Mode(mode.value) in mappings.modes_of(resource.removeprefix(f"{DOMAIN}/")):
        return
    kind = FPGA_REGION if mode.hands_out_engines else f"{ACCELERATOR_FUNCTION} of mode af"
    raise NotMapped(
        f"{who} was given {plain(resource)}, and no {kind} in namespace"
        f" {plain(mappings.namespace)} maps that: request a name that is mapped, or ask an"
        " administrator for a mapping"
    )


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
