"""`accelbind fpga clear-errors`."""

from pathlib import Path
from typing import Any

from services.hardware.device_errors import clear_device_errors
from services.hardware.ports import DeviceFiles, find_device
from services.hardware.scan import scan


def clear(root: Path, device: str) -> tuple[str, list[dict[str, Any]]]:
    """Clears a device's errors.

    Args:
        root: Folder below which `sys/` is.
        device: An FME or a port.

    Returns:
        The device's name, and what was cleared, a register each.

    Raises:
        HardwareError: There is no such device, or a register can't be cleared.
    """
    place = find_device(scan(root), device)
    return place.name, [
        {
            "device": place.name,
            "register": each.register,
            "value": f"{each.value:#x}",
            "now": None if each.now is None else f"{each.now:#x}",
        }
        for each in clear_device_errors(DeviceFiles(root, place), place)
    ]
