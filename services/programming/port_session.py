"""A port opened alone, so that nobody else uses it meanwhile."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.devices.health import port_disabled
from services.process.errors import DeviceBusy, DeviceGone, DeviceRefused, HardwareError
from services.process.text import listing
from services.programming.ioctls import IOCTLS, DriverCalls, DriverNode, holders_of
from services.programming.port import DeviceFiles, EnginePlace, PortPlace

FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_GONE: Final = frozenset({errno.ENODEV, errno.ENXIO, errno.ENOENT})
_NAMED: Final = 3
"""Processes that a message names."""


@dataclass(frozen=True, slots=True)
class PortSession:
    """A port that nobody else has."""

    place: PortPlace
    files: DeviceFiles
    node: DriverNode

    def reset(self) -> None:
        """Reset the port and the function in it."""
        try:
            self.node.reset_port()
        except OSError as error:
            failed = translated(error, f"{self.place.name} can't be reset")
            raise with_remedy(failed, self.files) from error


@contextmanager
def port_session(root: Path, place: PortPlace, calls: DriverCalls) -> Iterator[PortSession]:
    """Open a port alone.

    Raises:
        DeviceBusy: Somebody else has it.
        DeviceGone: It isn't there, or went meanwhile, whatever went wrong then.
        HardwareError: It can't be opened, or what is done with it fails.
    """
    files = DeviceFiles(root, place)
    try:
        operation = f"{place.name} can't be opened"
        with opened_node(files.node(), operation, place, alone=True, calls=calls) as node:
            yield PortSession(place, files, node)
    except (OSError, HardwareError) as error:
        if not files.is_there:
            text = f"{place.name} has vanished while it was worked on (card {place.card.address})"
            raise DeviceGone(text) from error
        if isinstance(error, OSError):
            raise translated(error, f"working on {place.name} failed") from error
        raise


@contextmanager
def opened_node(
    node: Path,
    operation: str,
    place: PortPlace | EnginePlace,
    *,
    alone: bool = False,
    calls: DriverCalls,
) -> Iterator[DriverNode]:
    """Open a device node for ioctls; `operation` starts the message if that fails."""
    ioctls = IOCTLS.get(place.card.driver)
    if ioctls is None:
        raise DeviceRefused(f"{operation}: the driver {place.card.driver} has no known ioctls")
    try:
        descriptor = calls.open(node, alone=alone)
    except OSError as error:
        if error.errno == errno.EBUSY and isinstance(place, PortPlace):
            raise busy(place, holders_of(node)) from error
        raise translated(error, operation) from error
    try:
        yield DriverNode(descriptor, node, ioctls, calls)
    finally:
        os.close(descriptor)


def with_remedy(error: HardwareError, port: DeviceFiles) -> HardwareError:
    """An error that also says how to enable its port, if that is disabled now."""
    return type(error)(f"{error}; {port_disabled(port.name)}") if port.is_disabled else error


def busy(place: PortPlace, holders: Sequence[str]) -> DeviceBusy:
    """The error for a port that is in use by processes."""
    who = "another process, which can't be seen from here"
    if holders:
        who = listing(holders, most=_NAMED)
    return DeviceBusy(f"{place.name} is in use by {who}: end that first, or delete its pod")


def translated(error: OSError, operation: str) -> HardwareError:
    """An OSError as an error of accelbind; the operation that failed starts the sentence."""
    reason = error.strerror or str(error)
    if error.errno == errno.EBUSY:
        return DeviceBusy(f"{operation}: the device is in use ({reason})")
    if error.errno in _GONE:
        return DeviceGone(f"{operation}: the device is gone ({reason})")
    if error.errno in FORBIDDEN:
        return HardwareError(f"{operation}: user {os.geteuid()} may not ({reason})")
    return DeviceRefused(f"{operation}: {reason}")
