"""Error registers: reading and clearing them, and what they say about a refused programming.

Clearing runs code of the driver and may hang: call it in a thread with a deadline.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from services.devices.hardware.drivers import ErrorFile
from services.devices.hardware.scan import DRIVER_BY_NAME
from services.devices.health import register_value
from services.devices.model import Card, Port
from services.process.errors import DeviceBusy, HardwareError
from services.process.text import clip, plain
from services.programming.host_state import HostState
from services.programming.ioctls import DriverCalls
from services.programming.port import (
    FORBIDDEN,
    DeviceFiles,
    EnginePlace,
    PortPlace,
    port_session,
    translated,
    with_remedy,
)

LOCK_SECONDS: Final = 1.0

_READ_ONLY: Final = ("errors/catfatal_errors", "errors/nonfatal_errors")
"""Registers of an engine that can't be cleared."""


# Clearing by hand --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClearedRegister:
    """A register that was cleared, by its file below the device's folder."""

    register: str
    value: int
    """What it read before."""
    now: int | None
    """What it reads now, None if nothing usable."""


def _clearable(place: PortPlace | EnginePlace) -> tuple[ErrorFile, ...]:
    driver = DRIVER_BY_NAME[place.card.driver]
    return driver.clearable_fme if isinstance(place, EnginePlace) else (driver.port_errors,)


def read_errors(files: DeviceFiles, place: PortPlace | EnginePlace) -> dict[str, int]:
    """The error registers of a device that can be read, by their files."""
    names = [each.read for each in _clearable(place)]
    if isinstance(place, EnginePlace):
        names += _READ_ONLY
    values = {name: register_value(files.text(name)) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def clear_device_errors(
    files: DeviceFiles, place: PortPlace | EnginePlace
) -> list[ClearedRegister]:
    """Clear the error registers of a device that aren't zero."""
    cleared = []
    for each in _clearable(place):
        if value := register_value(files.text(each.read)):
            _clear(files, each, value)
            now = register_value(files.text(each.read))
            cleared.append(ClearedRegister(each.read, value, now))
    return cleared


def kept_errors(files: DeviceFiles) -> dict[str, int]:
    """Errors that no driver lets be cleared, by the file of their register."""
    values = {name: register_value(files.text(name)) for name in _READ_ONLY}
    return {name: value for name, value in values.items() if value}


def _clear(files: DeviceFiles, register: ErrorFile, value: int) -> None:
    operation = f"{register.read} of {files.name} ({value:#x}) can't be cleared"
    if files.path(register.clear) is None:
        raise HardwareError(f"{operation}: there is no {register.clear}")
    try:
        # Both drivers take the value that is to be cleared, and refuse it if the register reads
        # another by then: in-tree in the register itself, out of tree in a file beside it (Linux,
        # `Documentation/ABI/testing/sysfs-platform-dfl-{fme,port}`).
        files.write(register.clear, f"{value:#x}\n".encode())
    except OSError as error:
        if error.errno == errno.EBUSY:  # `afu_port_err_clear`, before it resets the port
            text = (
                f"{operation} in AFU power state 6 (AP6), when the card is too hot or lacks power"
            )
            raise DeviceBusy(f"{text}: {error.strerror}") from error
        raise with_remedy(translated(error, operation), files) from error


# Clearing what a workload left -------------------------------------------------------------------


class ClearResult(StrEnum):
    """The result of a clearing; stable words for metrics."""

    CLEARED = "cleared"
    """The driver took the value."""
    CHANGED = "changed"
    """The register reads something else by now, or nothing; nothing was written."""
    FORBIDDEN = "forbidden"
    """This process may not write there."""
    BUSY = "busy"
    """A process has the port or works on the card, or the driver refuses it in power state AP6;
    nothing was written, and it is tried again."""
    FAILED = "failed"
    """The port is gone, or the driver refused."""
    HUNG = "hung"
    """The write took longer than 5 s and was given up."""


def clear_errors(
    root: Path, card: Card, port: Port, host: HostState, calls: DriverCalls
) -> tuple[ClearResult, str]:
    """Clear the errors of a port if they are still the same and nobody has the port.

    Returns:
        The result, and why it isn't `CLEARED`. Nothing is raised for what files or driver do.
    """
    value, place = port.errors or 0, PortPlace(card, port, None)
    lock = host.lock_card(card.lock, seconds=LOCK_SECONDS)
    register = DRIVER_BY_NAME[card.driver].port_errors
    try:
        # Read before the port is opened for nothing, and again when nobody else can have it.
        if changed := _changed(DeviceFiles(root, place), register, value):
            return ClearResult.CHANGED, changed
        # Clearing resets the port (`afu_port_err_clear`, `drivers/fpga/dfl-afu-error.c`), so nobody
        # may have it meanwhile.
        with lock, port_session(root, place, calls) as session:
            if changed := _changed(session.files, register, value):
                return ClearResult.CHANGED, changed
            _clear(session.files, register, value)
    except DeviceBusy as error:
        return ClearResult.BUSY, str(error)
    except HardwareError as error:
        is_forbidden = isinstance(error.__cause__, OSError) and error.__cause__.errno in FORBIDDEN
        outcome = ClearResult.FORBIDDEN if is_forbidden else ClearResult.FAILED
        return outcome, f"errors {value:#x} of {port.name}, which clearing resets: {error}"
    return ClearResult.CLEARED, ""


def _changed(files: DeviceFiles, register: ErrorFile, value: int) -> str:
    """The content of a register if it is not what is to be cleared; empty if it is."""
    text = files.text(register.read)
    if register_value(text) == value:
        return ""
    return f"{register.read} of {files.name} reads {plain(text, 48) or 'nothing'} by now"


# Why the hardware refused a programming ----------------------------------------------------------

PR_ERRORS: Final = (
    "operation error",
    "CRC error",
    "incompatible bitstream",
    "IP protocol error",
    "FIFO overflow",
    "time-out",
    "secure load error",
)
"""What the bits of a status mean, from bit 0 (`FME_PR_ERR`, and the OPAE SDK's `reconf.c`)."""

_FOLDERS: Final = ("errors", "errors/fme-errors")
_MANAGERS: Final = ("fpga_manager", "dfl-fme-mgr")
_MAX_STATUS: Final = 200
_MAX_REASON: Final = 500
"""Characters: the advice comes after it in a pod's Event, whose length is limited."""


def why_refused(engine: DeviceFiles, status: int) -> str:
    """The engine's and the driver's reports of the last reconfiguration."""
    reasons = [*_status(status), *_managers(engine), *_registers(engine)]
    return clip("; ".join(reasons), _MAX_REASON)


def _status(status: int) -> Iterator[str]:
    words = [word for bit, word in enumerate(PR_ERRORS) if status >> bit & 1]
    rest = status >> len(PR_ERRORS) << len(PR_ERRORS)
    if rest:
        words.append(f"status {rest:#x}")
    if words:
        yield ", ".join(words)


def _managers(engine: DeviceFiles) -> Iterator[str]:
    # The only source under the in-tree driver.
    for name in engine.names():
        if not name.startswith(_MANAGERS):
            continue
        folder = name if name == "fpga_manager" else f"{name}/fpga_manager"
        for manager in engine.names(folder):
            text = engine.text(f"{folder}/{manager}/status")
            if text and register_value(text) != 0:
                lines = ", ".join(filter(None, map(str.strip, text.splitlines())))
                yield plain(lines, _MAX_STATUS)


def _registers(engine: DeviceFiles) -> Iterator[str]:
    for folder in _FOLDERS:
        for name in engine.names(folder):
            if not name.endswith("errors") and name != "first_error":
                continue
            if value := register_value(engine.text(f"{folder}/{name}")):
                yield f"{folder}/{name} of {engine.name} reads {value:#x}"
