"""Drivers as data: where each puts its cards, their parts and registers.

A driver has a class folder with an entry for each card. An entry has a folder for its management
engine and one for each of its ports, named as their device nodes are. To support another driver,
add its value here and to `services.devices.hardware.scan.DRIVERS`, and its ioctls to
`services.programming.ioctls.IOCTLS` if its ports can be programmed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from services.devices.hardware.sysfs import Sysfs


class Numbered:
    """Names made of a prefix and a number: `dfl-port.3`, `region12`."""

    def __init__(self, prefix: str) -> None:
        self._folders = re.compile(rf"/({re.escape(prefix)}[0-9]{{1,9}})(?=/)")

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of this kind among the names in a folder, by number."""
        # One search for all names takes a tenth of the time of one search for each; sorting them as
        # devices are would add a twentieth to a scan.
        folders: list[str] = self._folders.findall(f"/{'/'.join(names)}/")
        if len(folders) > 1:
            folders.sort()
            folders.sort(key=len)
        return folders

    def is_on(self, path: str) -> bool:
        """Whether a folder of this kind is on a path."""
        return self._folders.search(f"/{path}/") is not None


class FilePattern:
    """Files below a folder, as a path in which names can end in `*` for a number."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = [
            Numbered(name.removesuffix("*")) if name.endswith("*") else name
            for name in text.split("/")
        ]

    def find(self, files: Sysfs, folder: str) -> list[str]:
        """The paths that may be there, by number. Only names with numbers are looked up."""
        folders = [folder]
        for step in self._steps:
            if isinstance(step, str):
                folders = [f"{each}/{step}" for each in folders]
            else:
                folders = [
                    f"{each}/{name}"
                    for each in folders
                    for name in step.among(files.names_if_listable(each))
                ]
        return folders


class Register:
    """Files that should read zero, as a pattern, and the reason code if one doesn't."""

    def __init__(self, files: str, reason: str) -> None:
        self.files = FilePattern(files)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ErrorFile:
    """An error register that can be cleared."""

    read: str
    """Its file, below the folder of its port or engine."""
    clear: str
    """The file that takes the value to clear."""


PORT_REGISTERS = (
    Register("errors/errors", "port-errors"),
    Register("ap1_event", "ap1-event"),
    Register("ap2_event", "ap2-event"),
)
"""Of the ports of both drivers."""
PCIE_ERRORS = tuple(
    ErrorFile(file, file) for file in ("errors/pcie0_errors", "errors/pcie1_errors")
)


@dataclass(frozen=True, slots=True)
class Driver:
    """Where a driver puts its cards and what they consist of."""

    name: str
    module: str
    folder: str
    """Its class folder, below the root."""
    entry: Numbered
    """Names of cards in the class folder."""
    fme: Numbered
    """Names of engines, below a card and below `/dev`."""
    port: Numbered
    """Names of ports, below a card and below `/dev`."""
    interface_id: FilePattern
    """Files of an engine that may hold its interface id; the first usable one counts."""
    fme_registers: tuple[Register, ...]
    port_registers: tuple[Register, ...]
    port_errors: ErrorFile
    clearable_fme: tuple[ErrorFile, ...]
    programs_virtual: bool
    """Whether it can program a port that is released to a virtual function."""


DFL = Driver(
    name="dfl",
    module="dfl-pci",
    folder="/sys/class/fpga_region",
    entry=Numbered("region"),
    fme=Numbered("dfl-fme."),
    port=Numbered("dfl-port."),
    # An engine may have a region for each port: parts of one image, with one interface id.
    interface_id=FilePattern("dfl-fme-region.*/fpga_region/region*/compat_id"),
    fme_registers=(
        Register("errors/fme_errors", "fme-errors"),
        Register("errors/catfatal_errors", "fme-catfatal-errors"),
        Register("errors/nonfatal_errors", "fme-nonfatal-errors"),
        # Older drivers report heat in the first, newer ones below hwmon.
        Register("thermal_mgmt/threshold2_reached", "overheated"),
        Register("hwmon/hwmon*/temp1_crit_alarm", "overheated"),
    ),
    port_registers=PORT_REGISTERS,
    port_errors=ErrorFile("errors/errors", "errors/errors"),
    clearable_fme=(
        ErrorFile("errors/fme_errors", "errors/fme_errors"),
        *PCIE_ERRORS,
    ),
    # It deletes the device that it would program through (`dfl_fpga_cdev_release_port`).
    programs_virtual=False,
)


OPAE = Driver(
    name="opae",
    module="intel-fpga-pci",
    folder="/sys/class/fpga",
    entry=Numbered("intel-fpga-dev."),
    fme=Numbered("intel-fpga-fme."),
    port=Numbered("intel-fpga-port."),
    interface_id=FilePattern("pr/interface_id"),
    fme_registers=(
        Register("errors/fme-errors/errors", "fme-errors"),
        Register("errors/catfatal_errors", "fme-catfatal-errors"),
        Register("errors/nonfatal_errors", "fme-nonfatal-errors"),
        Register("thermal_mgmt/threshold2_reached", "overheated"),
    ),
    port_registers=PORT_REGISTERS,
    port_errors=ErrorFile("errors/errors", "errors/clear"),
    clearable_fme=(
        ErrorFile("errors/fme-errors/errors", "errors/fme-errors/clear"),
        *PCIE_ERRORS,
    ),
    programs_virtual=True,
)
