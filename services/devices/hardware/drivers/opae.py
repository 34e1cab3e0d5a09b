"""Cards under the out-of-tree driver (`intel-fpga-pci`): `/sys/class/fpga/intel-fpga-dev.N`."""

from services.devices.hardware.drivers.base import (
    PCIE_ERRORS,
    Driver,
    ErrorFile,
    FilePattern,
    Numbered,
    Register,
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
    port_errors=ErrorFile("errors/errors", "errors/clear"),
    clearable_fme=(
        ErrorFile("errors/fme-errors/errors", "errors/fme-errors/clear"),
        *PCIE_ERRORS,
    ),
    programs_virtual=True,
)
