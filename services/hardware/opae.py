"""Cards under the out-of-tree driver (`intel-fpga-pci`): `/sys/class/fpga/intel-fpga-dev.N`."""

import re
from collections.abc import Iterator

from services.domain.devices import Problem
from services.domain.health import Reading
from services.hardware.card import Driver, Register
from services.hardware.sysfs import Sysfs

_FME_REGISTERS = (
    Register("errors/fme-errors/errors", "fme-errors"),
    Register("errors/catfatal_errors", "fme-catfatal-errors"),
    Register("errors/nonfatal_errors", "fme-nonfatal-errors"),
    Register("thermal_mgmt/threshold2_reached", "overheated"),
)


def _interface_id(files: Sysfs, fme: str, _name: str) -> tuple[Reading, tuple[Problem, ...]]:
    return files.read(f"{fme}/pr/interface_id"), ()


def _registers_of(_files: Sysfs, _fme: str) -> Iterator[Register]:
    yield from _FME_REGISTERS


OPAE = Driver(
    name="opae",
    folder="/sys/class/fpga",
    entry=re.compile(r"intel-fpga-dev\.[0-9]{1,9}"),
    fme=re.compile(r"intel-fpga-fme\.[0-9]{1,9}"),
    port=re.compile(r"intel-fpga-port\.[0-9]{1,9}"),
    id_file="pr/interface_id",
    interface_id=_interface_id,
    registers_of=_registers_of,
)
