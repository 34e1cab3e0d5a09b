"""The settings of a process that looks after a node's cards.

A setting is one field: its flag, variable, help and documentation follow from it.
"""

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from services.devices.limits import parse_ignored
from services.devices.model import PluginMode
from services.devices.reasons import FLAGS, REGISTERS
from services.devices.resources import DEFAULT_UNITS
from services.names import ACCELERATOR_DOMAIN, DOMAIN, UNIT_RESOURCE
from services.process.errors import InvalidSettings
from services.process.settings import TIME, CommaSeparated, Flag, ProcessSettings, Seconds
from services.process.text import listing

CARDS: Final = "Cards"

TYPES: Final = "Device types"

_TAKEN: Final = (DOMAIN, UNIT_RESOURCE.partition("/")[0], ACCELERATOR_DOMAIN)
"""Domains of FPGAs and of logical names."""
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})+")

AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]


def _checked(words: tuple[str, ...]) -> tuple[str, ...]:
    try:
        parse_ignored(words)
    except InvalidSettings as error:
        raise ValueError(str(error)) from error
    return words


def _domains(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if word in _TAKEN or word.endswith("kubernetes.io") or not _DOMAIN.fullmatch(word):
            raise ValueError(
                f"{word!r:.60} can't be a domain of device types: it must be a DNS name, and none"
                f" of {listing([*_TAKEN, 'kubernetes.io'], last='or')}"
            )
    return words


class NodeSettings(ProcessSettings):
    """Where a node's cards are, and when their devices are healthy."""

    mode: Annotated[PluginMode, Flag("MODE", CARDS)] = PluginMode.AF
    """What a device is: af (a port with its function), region (programmed before a container
    starts), regiondevel (with the management engine's node too), units, bdf, none (no FPGAs are
    served). The node's annotation
    fpga.intel.com/device-plugin-mode overrides it."""
    root: Annotated[AbsolutePath, Flag("DIR", CARDS)] = Path("/")
    """Folder that contains sys/ and dev/."""
    host_root: Annotated[AbsolutePath, Flag("DIR", CARDS, "as --root")] = Field(
        default_factory=lambda data: data["root"]
    )
    """Prefix of the device paths reported to the kubelet."""
    units: Annotated[int, Field(ge=1, le=10_000), Flag("N", CARDS)] = DEFAULT_UNITS
    """Number of units in mode units."""
    device_types: Annotated[AbsolutePath | None, Flag("DIR", TYPES, "none")] = None
    """Folder of device types, one YAML file each: what else to serve besides FPGAs."""
    resource_domain: Annotated[CommaSeparated, AfterValidator(_domains), Flag("DOMAIN", TYPES)] = (
        "device.accelbind.dev",
    )
    """Domains in which the resources of device types may be."""
    scan_interval: Annotated[Seconds, Field(ge=0.05, le=3600), Flag(TIME, CARDS)] = 5.0
    """Time between two scans of the cards."""
    healthy_after: Annotated[int, Field(ge=1, le=1000), Flag("N", CARDS)] = 3
    """Number of good scans in a row after which an unhealthy device is healthy again."""
    max_temperature: Annotated[
        Annotated[float, Field(gt=-100, le=400)] | None, Flag("CELSIUS", CARDS, "none")
    ] = None
    """Hotter cards are unhealthy, whatever their own limits are."""
    max_power: Annotated[
        Annotated[float, Field(gt=0, le=5000)] | None, Flag("WATTS", CARDS, "none")
    ] = None
    """Cards that draw more power are unhealthy."""
    ignore_errors: Annotated[
        CommaSeparated,
        AfterValidator(_checked),
        Flag("ERROR", CARDS, "none"),
        Field(
            description=f"Errors that leave a device healthy, by reason: {', '.join(REGISTERS)}"
            f" (or some bits: port-errors=0x8), {', '.join(FLAGS)}."
        ),
    ] = ()
    sensor_interval: Annotated[Seconds, Field(ge=0.05, le=3600), Flag(TIME, CARDS)] = 30.0
    """Time between two reads of temperatures, power and error counters."""
    clear_errors: Annotated[bool, Flag(group=CARDS)] = True
    """Clear the errors that a container left in a port, once nobody uses it."""
