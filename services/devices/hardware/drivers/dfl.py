"""Cards under the in-tree driver (`dfl-pci`): `/sys/class/fpga_region/regionN`.

The class folder also lists the partial-reconfiguration regions inside the cards, and regions of
functions that have neither engine nor port.
"""

from services.devices.hardware.drivers.base import (
    PCIE_ERRORS,
    Driver,
    ErrorFile,
    FilePattern,
    Numbered,
    Register,
)

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
    port_errors=ErrorFile("errors/errors", "errors/errors"),
    clearable_fme=(
        ErrorFile("errors/fme_errors", "errors/fme_errors"),
        *PCIE_ERRORS,
    ),
    # It deletes the device that it would program through (`dfl_fpga_cdev_release_port`).
    programs_virtual=False,
)
