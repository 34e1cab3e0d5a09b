"""Cards under the in-tree driver (`dfl-pci`): `/sys/class/fpga_region/regionN`.

The class folder also lists the partial-reconfiguration regions inside of the cards, and regions of
functions without engine or port; `services.hardware.card` skips what has neither.
"""

import re
from collections.abc import Iterator

from services.domain.devices import Problem
from services.domain.health import Failure, Reading, judge_id
from services.hardware.card import Driver, Register
from services.hardware.sysfs import Sysfs

_REGION = re.compile(r"dfl-fme-region\.[0-9]{1,9}")
_INNER = re.compile(r"region[0-9]{1,9}")
_HWMON = re.compile(r"hwmon[0-9]{1,9}")

_FME_REGISTERS = (
    Register("errors/fme_errors", "fme-errors"),
    Register("errors/catfatal_errors", "fme-catfatal-errors"),
    Register("errors/nonfatal_errors", "fme-nonfatal-errors"),
    Register("thermal_mgmt/threshold2_reached", "overheated"),
)


def _interface_id(files: Sysfs, fme: str, name: str) -> tuple[Reading, tuple[Problem, ...]]:
    """The interface id of an engine: that of its first region that has a usable one.

    An engine may have several regions, one a port. They are parts of one image, so one id stands
    for all; where the ids differ, that is said.
    """
    first = Reading(failure=Failure.MISSING)
    usable: dict[str, Reading] = {}
    for file in _compat_ids(files, fme):
        reading = files.read(file)
        value, problem = judge_id("interface-id", "compat_id", name, reading)
        if problem is None:
            usable.setdefault(value, reading)
        elif first.failure is Failure.MISSING:
            first = reading
    if not usable:
        return first, ()
    chosen = next(iter(usable))
    if len(usable) == 1:
        return usable[chosen], ()
    text = f"the regions of {name} differ ({', '.join(usable)}); {chosen} stands for all"
    return usable[chosen], (Problem("interface-ids-differ", text),)


def _compat_ids(files: Sysfs, fme: str) -> Iterator[str]:
    for region in _sorted(files, fme, _REGION):
        folder = f"{fme}/{region}/fpga_region"
        for inner in _sorted(files, folder, _INNER):
            yield f"{folder}/{inner}/compat_id"


def _registers_of(files: Sysfs, fme: str) -> Iterator[Register]:
    """The engine's registers; newer drivers tell of heat by an alarm below `hwmon`."""
    yield from _FME_REGISTERS
    for monitor in _sorted(files, f"{fme}/hwmon", _HWMON):
        yield Register(f"hwmon/{monitor}/temp1_crit_alarm", "overheated")


def _sorted(files: Sysfs, folder: str, pattern: re.Pattern[str]) -> list[str]:
    try:
        names = files.names(folder)
    except OSError:
        return []
    matching = filter(pattern.fullmatch, names)
    return sorted(matching, key=lambda name: (len(name), name))


DFL = Driver(
    name="dfl",
    folder="/sys/class/fpga_region",
    entry=_INNER,
    fme=re.compile(r"dfl-fme\.[0-9]{1,9}"),
    port=re.compile(r"dfl-port\.[0-9]{1,9}"),
    id_file="dfl-fme-region.*/fpga_region/region*/compat_id",
    interface_id=_interface_id,
    registers_of=_registers_of,
)
