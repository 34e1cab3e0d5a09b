"""Cards under the out-of-tree driver (`intel-fpga-pci`): `/sys/class/fpga/intel-fpga-dev.N`."""

from services.devices.hardware.drivers.base import (
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
    port_registers=(
        Register("errors/errors", "port-errors"),
        Register("ap1_event", "ap1-event"),
        Register("ap2_event", "ap2-event"),
    ),
    clearable_port=(ErrorFile("errors/errors", "errors/clear"),),
    clearable_fme=(
        ErrorFile("errors/fme-errors/errors", "errors/fme-errors/clear"),
        ErrorFile("errors/pcie0_errors", "errors/pcie0_errors"),
        ErrorFile("errors/pcie1_errors", "errors/pcie1_errors"),
    ),
    programs_virtual=True,
)
