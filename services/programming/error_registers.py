"""Error registers: reading and clearing them, and what they say about a refused programming.

Both drivers take the value that is to be cleared, and refuse it if the register reads another by
then, so that no error is cleared unseen: in-tree in the register itself, out of tree in a file
beside it (Linux, `Documentation/ABI/testing/sysfs-platform-dfl-{fme,port}`). Registers that are not
listed by the driver clear themselves, or together with others.

To clear the errors of a port its driver resets it (`afu_port_err_clear` disables and enables the
port, `drivers/fpga/dfl-afu-error.c`). So the port is opened alone meanwhile, under the card's lock:
neither a workload that has the port nor a programming is disturbed. The write runs code of the
driver and may hang: call it in a thread with a deadline. Whether the errors stay away is for the
next scan to see.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from services.devices.hardware.drivers.base import ErrorFile
from services.devices.hardware.scan import DRIVER_BY_NAME
from services.devices.hardware.sysfs import Sysfs
from services.devices.health import evaluate_register, register_value
from services.devices.model import Card, Port
from services.devices.stale_errors import Clearing
from services.process.errors import DeviceBusy, HardwareError
from services.process.text import clip, plain
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.lock import card_lock
from services.programming.port import DeviceFiles, EnginePlace, PortPlace
from services.programming.port_session import FORBIDDEN, port_session, translated

LOCK_SECONDS: Final = 1.0
"""How long clearing waits for the card's lock."""

_READ_ONLY: Final = ("errors/catfatal_errors", "errors/nonfatal_errors")
"""Registers of an engine that can't be cleared."""


# Clearing by hand --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClearedRegister:
    """A register that was cleared."""

    register: str
    """Its file below the device's folder."""
    value: int
    """What it read before."""
    now: int | None
    """What it reads now, None if nothing usable."""


def _clearable(place: PortPlace | EnginePlace) -> tuple[ErrorFile, ...]:
    driver = DRIVER_BY_NAME[place.card.driver]
    return driver.clearable_fme if isinstance(place, EnginePlace) else driver.clearable_port


def read_errors(files: DeviceFiles, place: PortPlace | EnginePlace) -> dict[str, int]:
    """The error registers of a device that can be read, by their files."""
    names = [each.read for each in _clearable(place)]
    if isinstance(place, EnginePlace):
        names += _READ_ONLY
    values = {name: register_value(files.text(name)) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def clear_device_errors(
    files: DeviceFiles, place: PortPlace | EnginePlace
) -> tuple[ClearedRegister, ...]:
    """Clear the error registers of a device.

    Returns:
        The registers that weren't zero.

    Raises:
        HardwareError: One can't be cleared.
    """
    return tuple(_cleared(files, place))


def _cleared(files: DeviceFiles, place: PortPlace | EnginePlace) -> Iterator[ClearedRegister]:
    for each in _clearable(place):
        value = register_value(files.text(each.read))
        if not value:
            continue
        operation = f"{each.read} of {files.name} ({value:#x}) can't be cleared"
        if files.path(each.clear) is None:
            raise HardwareError(f"{operation}: there is no {each.clear}")
        try:
            files.write(each.clear, f"{value:#x}\n".encode())
        except OSError as error:
            raise translated(error, operation) from error
        yield ClearedRegister(each.read, value, register_value(files.text(each.read)))


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
    """A process has the port, or works on the card; nothing was written, and it is tried again."""
    FAILED = "failed"
    """The port is gone, or the driver refused."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """A clearing with its result."""

    clearing: Clearing
    outcome: ClearResult
    detail: str = ""
    """A sentence about it, empty where it went well."""


def _port_errors(driver: str) -> ErrorFile:
    return DRIVER_BY_NAME[driver].clearable_port[0]


def clearing_file(files: Sysfs, driver: str, card: str, port: str) -> str | None:
    """The file of a port that a clearing writes to, below the root; None if there is none.

    Args:
        files: The root's files.
        driver: Driver of the port's card.
        card: Name of the card's class entry.
        port: Name of the port.
    """
    folder = DRIVER_BY_NAME[driver].folder
    path = files.resolve(f"{folder}/{card}/{port}/{_port_errors(driver).clear}")
    return path if path is not None and files.exists(path) else None


def clear_errors(
    root: Path,
    clearing: Clearing,
    locks: Path,
    calls: DriverCalls = KERNEL,
    *,
    lock_seconds: float = LOCK_SECONDS,
) -> Cleared:
    """Clear the errors of a port if they are still the same and nobody has the port.

    Nothing is raised for what the files or the driver do.

    Args:
        root: Folder below which `sys/` and `dev/` are.
        clearing: The port and its errors.
        locks: Where the locks of cards are.
        calls: Makes the ioctls of the drivers.
        lock_seconds: How long to wait for the card's lock.
    """
    card = Card(clearing.driver, clearing.card, None, None)
    place = PortPlace(card, Port(clearing.port, None, "", clearing.port), None)
    lock = card_lock(locks, clearing.lock or clearing.card, seconds=lock_seconds)
    try:
        files = DeviceFiles(root, place)
        if changed := _changed(files, clearing):
            return changed
        if files.path(_port_errors(clearing.driver).clear) is None:
            text = f"{clearing.port} has no {_port_errors(clearing.driver).clear}"
            return Cleared(clearing, ClearResult.FAILED, text)
        with lock, port_session(root, place, calls) as session:
            changed = _changed(session.files, clearing)  # by who had the port until now
            return changed or _write_away(session.files, clearing)
    except DeviceBusy as error:
        return Cleared(clearing, ClearResult.BUSY, str(error))
    except HardwareError as error:
        is_forbidden = isinstance(error.__cause__, OSError) and error.__cause__.errno in FORBIDDEN
        outcome = ClearResult.FORBIDDEN if is_forbidden else ClearResult.FAILED
        text = f"clearing the errors of {clearing.port} resets it, so it has to be opened: {error}"
        return Cleared(clearing, outcome, text)


def _changed(files: DeviceFiles, clearing: Clearing) -> Cleared | None:
    """The result if a register doesn't read any more what is to be cleared; None if it does."""
    register = _port_errors(clearing.driver).read
    status = evaluate_register("port-errors", register, clearing.port, files.read(register))
    if status.value == clearing.value:
        return None
    found = status.problem or status.remark
    detail = found.message if found else f"{register} of {clearing.port} has no errors any more"
    return Cleared(clearing, ClearResult.CHANGED, detail)


def _write_away(files: DeviceFiles, clearing: Clearing) -> Cleared:
    file = _port_errors(clearing.driver).clear
    try:
        files.write(file, f"{clearing.value:#x}\n".encode())
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in FORBIDDEN:
            text = (
                f"user {os.geteuid()} may not write {file} of {clearing.port}: {reason}; its errors"
                f" stay until a user writes {clearing.value:#x} there"
            )
            return Cleared(clearing, ClearResult.FORBIDDEN, text)
        text = f"{file} of {clearing.port} doesn't take {clearing.value:#x}: {reason}"
        return Cleared(clearing, ClearResult.FAILED, text)
    return Cleared(clearing, ClearResult.CLEARED)


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
_MAX_REGISTERS: Final = 16
_MAX_STATUS: Final = 200
_MAX_REASON: Final = 500
"""Characters: the advice comes after it in a pod's Event, whose length is limited."""


def why_refused(engine: DeviceFiles, status: int) -> str:
    """What the hardware reports about its last reconfiguration; empty if nothing.

    Args:
        engine: Files of the management engine.
        status: What the driver gave back, 0 where it gives nothing.
    """
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
    """What the FPGA manager reports, the only source under the in-tree driver."""
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
    shown = 0
    for folder in _FOLDERS:
        for name in engine.names(folder):
            if not name.endswith("errors") and name != "first_error":
                continue
            value = register_value(engine.text(f"{folder}/{name}"))
            if value and shown < _MAX_REGISTERS:
                shown += 1
                yield f"{folder}/{name} of {engine.name} reads {value:#x}"
