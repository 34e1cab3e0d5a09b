"""Cards under the out-of-tree driver (`intel-fpga-pci`): `/sys/class/fpga/intel-fpga-dev.N`."""

from collections.abc import Iterator

from services.devices.hardware.layout import Driver, Lister, Register
from services.devices.hardware.numbered import Numbered

_FME_REGISTERS = (
    Register("errors/fme-errors/errors", "fme-errors"),
    Register("errors/catfatal_errors", "fme-catfatal-errors"),
    Register("errors/nonfatal_errors", "fme-nonfatal-errors"),
    Register("thermal_mgmt/threshold2_reached", "overheated"),
)


def _id_files(_lister: Lister, fme: str) -> Iterator[str]:
    yield f"{fme}/pr/interface_id"


def _registers_of(_lister: Lister, _fme: str) -> Iterator[Register]:
    yield from _FME_REGISTERS


OPAE = Driver(
    name="opae",
    folder="/sys/class/fpga",
    entry=Numbered("intel-fpga-dev."),
    fme=Numbered("intel-fpga-fme."),
    port=Numbered("intel-fpga-port."),
    id_file="pr/interface_id",
    id_files=_id_files,
    registers_of=_registers_of,
)
