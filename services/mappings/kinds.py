"""The kinds of custom resources that define names; sources, reviews and messages read this table.

A kind belongs to a family, which has names and domains of its own: a name is unique per namespace
and family.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from services import names


class Family(StrEnum):
    """A family of kinds: what their names stand for, and in which domains pods request them."""

    FPGA = "fpga"
    """Functions and regions of FPGAs, which accelbind's plugin serves."""
    ACCELERATOR = "accelerator"
    """Resources of any device plugin or DRA driver."""


@dataclass(frozen=True, slots=True)
class MappingKind:
    """A kind of mapping."""

    name: str
    api_version: str
    plural: str
    family: Family

    @property
    def group(self) -> str:
        """Its API group."""
        return self.api_version.partition("/")[0]

    @property
    def path(self) -> str:
        """Where the API server lists the objects of all namespaces."""
        return f"/apis/{self.api_version}/{self.plural}"


ACCELERATOR_FUNCTION: Final = "AcceleratorFunction"
FPGA_REGION: Final = "FpgaRegion"
ACCELERATOR: Final = "Accelerator"

FPGA_VERSION: Final = f"{names.DOMAIN}/v2"
ACCELERATOR_VERSION: Final = f"{names.ACCELERATOR_DOMAIN}/v1alpha1"

TABLE: Final = {
    kind.name: kind
    for kind in (
        MappingKind(ACCELERATOR_FUNCTION, FPGA_VERSION, "acceleratorfunctions", Family.FPGA),
        MappingKind(FPGA_REGION, FPGA_VERSION, "fpgaregions", Family.FPGA),
        MappingKind(ACCELERATOR, ACCELERATOR_VERSION, "accelerators", Family.ACCELERATOR),
    )
}
"""All kinds, by name."""
