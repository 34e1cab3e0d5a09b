"""The settings of `accelbind plugin`; after a change run `make docs` and `make golden`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from services.devices.model import PluginMode
from services.devices.resources import DEFAULT_UNITS
from services.node.settings import CARDS, PROGRAMMING, AbsolutePath, NodeSettings
from services.process.settings import Flag, ProcessSettings


class Programming(StrEnum):
    """How functions get into regions, in mode region."""

    PRESTART = "prestart"
    """Before a container starts, when the kubelet calls `PreStartContainer`."""
    OCI_HOOK = "oci-hook"
    """When the container runtime calls the OCI hook."""
    NONE = "none"
    """Never: a container only starts on functions that are already there."""


# A base of its own, so that help and documentation begin with the mode.
class ModeSettings(ProcessSettings):
    """What the devices of a node are."""

    mode: Annotated[PluginMode, Flag("MODE", CARDS)] = PluginMode.AF
    """What a device is: af (a port with its function), region (programmed before a container
    starts), regiondevel (with the management engine's node too), units, bdf, none (no FPGAs are
    served). The node's annotation
    fpga.intel.com/device-plugin-mode overrides it."""
    units: Annotated[int, Field(ge=1, le=10_000), Flag("N", CARDS)] = DEFAULT_UNITS
    """Number of units in mode units."""


class PluginSettings(NodeSettings, ModeSettings):
    """The settings of `accelbind plugin`."""

    cdi_dir: Annotated[AbsolutePath | None, Flag("DIR", CARDS, "none")] = None
    """Folder of CDI files, such as /var/run/cdi, to describe the devices in."""
    cdi: Annotated[bool, Flag(group=CARDS)] = False
    """Give containers the CDI names of their devices too."""
    programming: Annotated[Programming, Flag("HOW", PROGRAMMING)] = Programming.PRESTART
    """How functions get into regions: prestart (before a container starts), oci-hook (from the
    runtime's hook; needs --cdi-dir and a runtime with CDI), none (they are only verified)."""
    hook_path: Annotated[AbsolutePath, Flag("FILE", PROGRAMMING)] = Path(
        "/opt/accelbind/hook/accelbind-hook"
    )
    """Where the host has the OCI hook; the container runtime starts it from there."""

    def is_hooked(self, mode: PluginMode) -> bool:
        """Whether an OCI hook has the functions programmed in a mode."""
        return mode is PluginMode.REGION and self.programming is Programming.OCI_HOOK

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.cdi and self.cdi_dir is None:
            raise ValueError("--cdi names devices that a file in --cdi-dir describes: set that too")
        if self.programming is Programming.OCI_HOOK and self.cdi_dir is None:
            raise ValueError(
                "--programming=oci-hook announces the hook in a file in --cdi-dir: set that too"
            )
        return self
