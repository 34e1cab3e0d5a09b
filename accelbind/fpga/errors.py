"""`accelbind fpga clear-errors`."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from services.devices.hardware.scan import scan
from services.programming.error_registers import clear_device_errors
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.port import DeviceFiles, PortPlace, find_device
from services.programming.port_session import port_session


def clear(
    root: Path, device: str, calls: DriverCalls | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """Clears a device's errors.

    Args:
        root: Folder below which `sys/` and `dev/` are.
        device: An FME or a port.
        calls: Makes the ioctls of the drivers, if not the kernel.

    Returns:
        The device's name, and what was cleared, a register each.

    A port is opened alone meanwhile, since its driver resets it to clear them.

    Raises:
        DeviceBusy: Somebody has the port.
        HardwareError: There is no such device, or a register can't be cleared.
    """
    place = find_device(scan(root), device)
    alone = (
        port_session(root, place, calls or KERNEL)
        if isinstance(place, PortPlace)
        else nullcontext()
    )
    with alone:
        cleared = clear_device_errors(DeviceFiles(root, place), place)
    return place.name, [
        {
            "device": place.name,
            "register": each.register,
            "value": f"{each.value:#x}",
            "now": None if each.now is None else f"{each.now:#x}",
        }
        for each in cleared
    ]
