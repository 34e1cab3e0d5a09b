"""The error registers of one device, and clearing them by hand.

Both drivers take the value that is to be cleared, so that an error which comes meanwhile isn't
cleared unseen; in-tree in the register itself, out of tree in a file beside it (Linux,
`Documentation/ABI/testing/sysfs-platform-dfl-{fme,port}`). Registers that aren't here clear
themselves, or with others.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from services.devices.health import register_value
from services.process.errors import HardwareError
from services.programming.port import DeviceFiles, EnginePlace, PortPlace
from services.programming.port_session import translated

_PCIE: Final = (("errors/pcie0_errors",) * 2, ("errors/pcie1_errors",) * 2)
_WAYS: Final = {
    ("dfl", "port"): (("errors/errors", "errors/errors"),),
    ("opae", "port"): (("errors/errors", "errors/clear"),),
    ("dfl", "fme"): (("errors/fme_errors", "errors/fme_errors"), *_PCIE),
    ("opae", "fme"): (("errors/fme-errors/errors", "errors/fme-errors/clear"), *_PCIE),
}
"""By driver and kind: what is read, and what takes the value."""

_READ_ONLY: Final = ("errors/catfatal_errors", "errors/nonfatal_errors")


@dataclass(frozen=True, slots=True)
class ClearedRegister:
    """A register that was cleared.

    Args:
        register: Its file below the device's folder.
        value: What it read.
        now: What it reads now, None if nothing usable.
    """

    register: str
    value: int
    now: int | None


def _kind(place: PortPlace | EnginePlace) -> str:
    return "fme" if isinstance(place, EnginePlace) else "port"


def read_errors(files: DeviceFiles, place: PortPlace | EnginePlace) -> dict[str, int]:
    """The error registers of a device that can be read, by their files."""
    names = [register for register, _ in _WAYS[place.card.driver, _kind(place)]]
    if isinstance(place, EnginePlace):
        names += _READ_ONLY
    values = {name: register_value(files.text(name)) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def clear_device_errors(
    files: DeviceFiles, place: PortPlace | EnginePlace
) -> tuple[ClearedRegister, ...]:
    """Clears what a device has noted.

    Args:
        files: The device's files.
        place: The device.

    Returns:
        The registers that weren't zero.

    Raises:
        HardwareError: One can't be cleared.
    """
    return tuple(_cleared(files, place))


def _cleared(files: DeviceFiles, place: PortPlace | EnginePlace) -> Iterator[ClearedRegister]:
    for register, taking in _WAYS[place.card.driver, _kind(place)]:
        value = register_value(files.text(register))
        if not value:
            continue
        what = f"{register} of {files.name} ({value:#x}) can't be cleared"
        path = files.path(taking)
        if path is None:
            raise HardwareError(f"{what}: there is no {taking}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.write(descriptor, f"{value:#x}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise translated(error, what) from error
        yield ClearedRegister(register, value, register_value(files.text(register)))
