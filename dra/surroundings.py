"""What preparing a claim needs from elsewhere."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dra.claim_files import Given
from dra.wants import Want
from services.containers.claims import PodSource
from services.containers.permission import Enforce
from services.containers.wanted import WantedFunctions
from services.devices.dra import DraDevice
from services.node.regions import Readiness, RegionContents


class ClaimSource(PodSource, Protocol):
    """Where claims, pods and mappings come from: the API server."""

    async def get_claim(self, namespace: str, name: str) -> bytes | None:
        """A ResourceClaim as JSON; None if there is none."""


class Regions(Protocol):
    """What makes regions ready: `RegionProgramming`."""

    async def prepare(self, wanted: WantedFunctions, ids: Sequence[str]) -> Readiness:
        """Make regions carry functions."""

    async def verify(self, wanted: WantedFunctions, ids: Sequence[str]) -> Readiness:
        """Check that they do."""

    async def is_ready(self, wanted: WantedFunctions, ids: Sequence[str]) -> bool:
        """Whether they do."""

    async def read(self) -> RegionContents:
        """What is in the regions."""

    async def settle(self, ids: Sequence[str]) -> None:
        """Wait until no earlier work on regions goes on."""

    async def empty(self, ids: Sequence[str]) -> None:
        """Forget what is in regions."""


class ClaimFiles(Protocol):
    """The CDI files of claims."""

    async def write(self, uid: str, wants: Sequence[Want]) -> tuple[Given, ...]:
        """Write the file of a claim; return what it gives containers."""

    async def remove(self, uid: str) -> None:
        """Remove it; it need not be there."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What preparing a claim needs to know of the node and the cluster."""

    node_name: str
    source: ClaimSource
    devices: Callable[[], Mapping[str, DraDevice]]
    """Returns the node's devices by name; nothing is prepared before the first scan."""
    plugin_devices: Callable[[], Awaitable[frozenset[str]]]
    """The names of devices that pods still have from the device plugin."""
    enforce: Enforce = Enforce.AUTO
    programs: bool = True
    """Whether functions are programmed, or only verified."""
