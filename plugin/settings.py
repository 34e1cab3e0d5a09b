"""The settings of `accelbind plugin`, with either API.

A setting is one field: its flag, variable, help and documentation follow from it. After a change
run `make docs` and `make golden`.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from services.devices.model import PluginMode
from services.devices.resources import DEFAULT_UNITS
from services.node.settings import CARDS, PROGRAMMING, AbsolutePath, NodeSettings
from services.process.settings import Flag, ProcessSettings
from services.process.text import listing


class Api(StrEnum):
    """The API of the kubelet by which devices are offered."""

    DEVICE_PLUGIN = "device-plugin"
    """As extended resources."""
    DRA = "dra"
    """By Dynamic Resource Allocation: as ResourceSlices, for claims."""


class Programming(StrEnum):
    """How functions get into regions."""

    PRESTART = "prestart"
    """Before a container starts, when the kubelet calls `PreStartContainer`."""
    OCI_HOOK = "oci-hook"
    """When the container runtime calls the OCI hook."""
    ON_PREPARE = "on-prepare"
    """When the kubelet prepares a claim, before its pod has a sandbox."""
    NONE = "none"
    """Never: a container only gets functions that are already there."""


_OF_API: Final = {
    Api.DEVICE_PLUGIN: (Programming.PRESTART, Programming.OCI_HOOK, Programming.NONE),
    Api.DRA: (Programming.ON_PREPARE, Programming.NONE),
}
"""How functions get into regions with each API; the first is the default."""

_CDI_DIR: Final = Path("/var/run/cdi")


# A base of its own, so that help and documentation begin with API and mode.
class ModeSettings(ProcessSettings):
    """Settings of a node's devices and of how they are offered."""

    api: Annotated[Api, Flag("API", CARDS)] = Api.DEVICE_PLUGIN
    """By which API of the kubelet devices are offered: device-plugin (extended resources, in a
    mode), dra (claims; needs Kubernetes 1.36 and a container runtime with CDI)."""
    mode: Annotated[PluginMode, Flag("MODE", CARDS)] = PluginMode.AF
    """What a device is: af (a port with its function), region (programmed before a container
    starts), regiondevel (with the management engine's node too), units, bdf, none (no FPGAs are
    served). The node's annotation
    fpga.intel.com/device-plugin-mode overrides it. With --api dra only none counts: claims choose
    what they get."""
    units: Annotated[int, Field(ge=1, le=10_000), Flag("N", CARDS)] = DEFAULT_UNITS
    """Number of units in mode units."""


class PluginSettings(NodeSettings, ModeSettings):
    """The settings of `accelbind plugin`."""

    cdi_dir: Annotated[
        AbsolutePath | None, Flag("DIR", CARDS, "none; /var/run/cdi with --api dra")
    ] = Field(default_factory=lambda data: _CDI_DIR if data["api"] is Api.DRA else None)
    """Folder of CDI files, such as /var/run/cdi, to describe the devices in."""
    cdi: Annotated[bool, Flag(group=CARDS)] = False
    """Give containers the CDI names of their devices too."""
    programming: Annotated[
        Programming, Flag("HOW", PROGRAMMING, "prestart; on-prepare with --api dra")
    ] = Field(default_factory=lambda data: _OF_API[data["api"]][0])
    """How functions get into regions: prestart (before a container starts), oci-hook (from the
    runtime's hook; needs --cdi-dir and a runtime with CDI), on-prepare (when a claim is prepared),
    none (they are only verified)."""
    hook_path: Annotated[AbsolutePath, Flag("FILE", PROGRAMMING)] = Path(
        "/opt/accelbind/hook/accelbind-hook"
    )
    """Where the host has the OCI hook; the container runtime starts it from there."""

    def is_hooked(self, mode: PluginMode) -> bool:
        """Whether an OCI hook has the functions programmed in a mode."""
        return mode.programs and self.programming is Programming.OCI_HOOK

    @property
    def dra_mode(self) -> PluginMode:
        """The mode with DRA: that which offers all that FPGAs can be, or none."""
        return PluginMode.NONE if self.mode is PluginMode.NONE else PluginMode.REGION

    @property
    def idle_flags(self) -> list[str]:
        """Flags that were given and have no effect with the API."""
        if self.api is not Api.DRA:
            return []
        idle = {"units", "cdi"} | ({"mode"} if self.mode is not PluginMode.NONE else set())
        return [f"--{name}" for name in sorted(idle & self.model_fields_set)]

    @property
    def claims_dir(self) -> Path:
        """Folder of the CDI files of claims."""
        return self.cdi_dir or _CDI_DIR

    @property
    def programs(self) -> bool:
        """Whether functions are programmed, if the mode has regions for that."""
        return self.programming is not Programming.NONE

    @model_validator(mode="after")
    def _of_api(self) -> Self:
        known = _OF_API[self.api]
        if self.programming not in known:
            raise ValueError(
                f"--programming {self.programming} is not for --api {self.api}: it must be"
                f" {listing(known, last='or')}"
            )
        return self

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.cdi and self.cdi_dir is None:
            raise ValueError("--cdi names devices that a file in --cdi-dir describes: set that too")
        if self.programming is Programming.OCI_HOOK and self.cdi_dir is None:
            raise ValueError(
                "--programming=oci-hook announces the hook in a file in --cdi-dir: set that too"
            )
        return self
