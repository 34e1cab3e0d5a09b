"""Writing a port's errors away, as each driver wants it.

Both drivers take the value that is to be cleared, and refuse it if the register reads another by
then: in-tree through the register's own file, out of tree through a file beside it. The write runs
code of the driver, which may hang as any read of sysfs may: it is for a thread with a deadline.
Whether the errors stay away is for the next scan to see.

To clear the errors of a port its driver resets it (`afu_port_err_clear` disables and enables the
port, `drivers/fpga/dfl-afu-error.c`). So the port is opened alone meanwhile, under the card's lock:
neither a workload that has the port nor a programming is disturbed.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from services.devices.hardware.drivers.base import Driver
from services.devices.hardware.drivers.dfl import DFL
from services.devices.hardware.drivers.opae import OPAE
from services.devices.hardware.sysfs import Sysfs
from services.devices.health import evaluate_register
from services.devices.model import Card, Port
from services.devices.stale_errors import Clearing
from services.process.errors import DeviceBusy, HardwareError
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.lock import card_lock
from services.programming.port import PortPlace
from services.programming.port_session import port_session

REGISTER: Final = "errors/errors"

LOCK_SECONDS: Final = 1.0
"""How long to wait for the card's lock."""

_WAYS: Final[Mapping[str, tuple[Driver, str]]] = {
    DFL.name: (DFL, REGISTER),
    OPAE.name: (OPAE, "errors/clear"),
}
"""By driver: where its cards are, and which of a port's files takes the value."""

_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Outcome(StrEnum):
    """What became of a clearing; stable words for metrics."""

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
    """What became of one clearing.

    Args:
        clearing: What was to be cleared.
        outcome: What became of it.
        detail: A sentence about it, empty where it went well.
    """

    clearing: Clearing
    outcome: Outcome
    detail: str = ""


def clearing_file(files: Sysfs, driver: str, card: str, port: str) -> str | None:
    """The file of a port that a clearing writes to, below the root; None if there is none.

    Args:
        files: The root's files.
        driver: Driver of the port's card.
        card: Name of the card's class entry.
        port: Name of the port.
    """
    way, file = _WAYS[driver]
    path = files.resolve(f"{way.folder}/{card}/{port}/{file}")
    return path if path is not None and files.exists(path) else None


def clear_errors(
    root: Path, clearing: Clearing, locks: Path, calls: DriverCalls = KERNEL
) -> Cleared:
    """Clears the errors of a port if they still are what they were and nobody has the port.

    Args:
        root: Folder below which `sys/` and `dev/` are.
        clearing: The port and its errors.
        locks: Where the locks of cards are.
        calls: Makes the ioctls of the drivers.

    Returns:
        What became of it; nothing is raised for what the files or the driver do.
    """
    driver, file = _WAYS[clearing.driver]
    files = Sysfs(root)
    port = files.resolve(f"{driver.folder}/{clearing.card}/{clearing.port}")
    if port is None:
        return Cleared(clearing, Outcome.FAILED, f"{clearing.port} is gone")
    if changed := _changed(files, port, clearing):
        return changed
    path = files.resolve(f"{port}/{file}")
    if path is None:
        return Cleared(clearing, Outcome.FAILED, f"{clearing.port} has no {file}")
    try:
        with _alone(root, clearing, locks, calls):
            changed = _changed(files, port, clearing)  # by who had the port until now
            return changed or _written(root / path.lstrip("/"), clearing, file)
    except DeviceBusy as error:
        return Cleared(clearing, Outcome.BUSY, str(error))
    except HardwareError as error:
        forbidden = isinstance(error.__cause__, OSError) and error.__cause__.errno in _FORBIDDEN
        outcome = Outcome.FORBIDDEN if forbidden else Outcome.FAILED
        text = f"clearing the errors of {clearing.port} resets it, so it has to be opened: {error}"
        return Cleared(clearing, outcome, text)


def _written(path: Path, clearing: Clearing, file: str) -> Cleared:
    try:
        _write(path, f"{clearing.value:#x}\n".encode())
    except OSError as error:
        return _failed(clearing, file, error)
    return Cleared(clearing, Outcome.CLEARED)


@contextmanager
def _alone(root: Path, clearing: Clearing, locks: Path, calls: DriverCalls) -> Iterator[None]:
    """Has a port alone, and its card.

    Raises:
        DeviceBusy: Somebody else has one of them.
        HardwareError: The port can't be opened.
    """
    card = Card(clearing.driver, clearing.card, None, None)
    place = PortPlace(card, Port(clearing.port, None, "", clearing.port), None)
    lock = card_lock(locks, clearing.lock or clearing.card, seconds=LOCK_SECONDS)
    with lock, port_session(root, place, calls):
        yield


def _changed(files: Sysfs, port: str, clearing: Clearing) -> Cleared | None:
    """Says that a register doesn't read any more what is to be cleared, if so."""
    register = files.resolve(f"{port}/{REGISTER}") or f"{port}/{REGISTER}"
    verdict = evaluate_register("port-errors", REGISTER, clearing.port, files.read(register))
    if verdict.value == clearing.value:
        return None
    told = verdict.problem or verdict.remark
    detail = told.message if told else f"{REGISTER} of {clearing.port} has no errors any more"
    return Cleared(clearing, Outcome.CHANGED, detail)


def _write(path: Path, content: bytes) -> None:
    """Writes in one go to what must be a file already; the driver sees one write as one value."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _failed(clearing: Clearing, file: str, error: OSError) -> Cleared:
    reason = error.strerror or str(error)
    if error.errno in _FORBIDDEN:
        text = (
            f"user {os.geteuid()} may not write {file} of {clearing.port}: {reason}; its errors"
            f" stay until somebody writes {clearing.value:#x} there"
        )
        return Cleared(clearing, Outcome.FORBIDDEN, text)
    text = f"{file} of {clearing.port} doesn't take {clearing.value:#x}: {reason}"
    return Cleared(clearing, Outcome.FAILED, text)
