"""Cards under the in-tree driver (`dfl-pci`): `/sys/class/fpga_region/regionN`.

The class folder also lists the partial-reconfiguration regions inside of the cards, and regions of
functions without engine or port; `services.devices.hardware.card` skips what has neither.
"""

from collections.abc import Iterator

from services.devices.hardware.layout import Driver, Lister, Register
from services.devices.hardware.numbered import Numbered

_REGION = Numbered("dfl-fme-region.")
_INNER = Numbered("region")
_HWMON = Numbered("hwmon")

_FME_REGISTERS = (
    Register("errors/fme_errors", "fme-errors"),
    Register("errors/catfatal_errors", "fme-catfatal-errors"),
    Register("errors/nonfatal_errors", "fme-nonfatal-errors"),
)
_HOT = "thermal_mgmt/threshold2_reached"
_ALARM = "temp1_crit_alarm"


def _id_files(lister: Lister, fme: str) -> Iterator[str]:
    """An engine may have several regions, one a port: parts of one image, with one id."""
    for region in lister.numbered(fme, _REGION):
        folder = f"{fme}/{region}/fpga_region"
        for inner in lister.numbered(folder, _INNER):
            yield f"{folder}/{inner}/compat_id"


def _registers_of(lister: Lister, fme: str) -> Iterator[Register]:
    """The engine's registers; of heat, older drivers tell beside them and newer ones below `hwmon`.

    Which of these a driver has, it says when it makes their folders.
    """
    yield from _FME_REGISTERS
    if lister.has(fme, "thermal_mgmt"):
        yield Register(_HOT, "overheated")
    if lister.has(fme, "hwmon"):
        for monitor in lister.numbered(f"{fme}/hwmon", _HWMON):
            if lister.has(f"{fme}/hwmon/{monitor}", _ALARM):
                yield Register(f"hwmon/{monitor}/{_ALARM}", "overheated")


DFL = Driver(
    name="dfl",
    folder="/sys/class/fpga_region",
    entry=_INNER,
    fme=Numbered("dfl-fme."),
    port=Numbered("dfl-port."),
    id_file="dfl-fme-region.*/fpga_region/region*/compat_id",
    id_files=_id_files,
    registers_of=_registers_of,
)
