"""A port that is ours for a while: opened alone, so that nobody else uses it meanwhile."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from services.process.errors import DeviceBusy, DeviceGone, DeviceRefused, HardwareError
from services.programming import simulated
from services.programming.ioctls import (
    CALLS,
    Calls,
    SimulatedNode,
    api_version,
    open_node,
    reset_port,
)
from services.programming.port import DeviceFiles, PortPlace
from services.programming.port_holders import Holder, holders_of, named, who_has

_GONE: Final = frozenset({errno.ENODEV, errno.ENXIO, errno.ENOENT})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_UNKNOWN: Final = frozenset({errno.ENOTTY, errno.ENOSYS})


class PortSession:
    """A port that nobody else has.

    Args:
        place: The port.
        files: Its files.
        descriptor: Its node, open alone.
        is_real: Whether its node is one of the kernel's; below an injected root, none is.
    """

    def __init__(
        self, place: PortPlace, files: DeviceFiles, descriptor: int, *, is_real: bool
    ) -> None:
        self.place = place
        self.files = files
        self._descriptor = descriptor
        self._is_real = is_real

    @property
    def calls(self) -> Calls:
        """The ioctls of its driver."""
        return CALLS[self.place.card.driver]

    def check_version(self) -> str:
        """Asks the driver for the version of its interface; what is odd about it, if anything.

        Drivers only ever add to their interface, so a newer version is no obstacle.
        """
        try:
            version = api_version(self._descriptor, self.calls)
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
            return f"the driver of {self.place.name} doesn't tell the version of its interface"
        if version:
            return f"the driver of {self.place.name} has interface version {version}, we know 0"
        return ""

    def reset(self) -> None:
        """Resets the port and the function in it, if there is a driver that could."""
        try:
            reset_port(self._descriptor, self.calls)
        except OSError as error:
            if error.errno in _UNKNOWN and not self._is_real:
                return
            raise translated(error, f"{self.place.name} can't be reset") from error


@contextmanager
def port_session(root: Path, place: PortPlace) -> Iterator[PortSession]:
    """Has a port alone.

    Args:
        root: Folder below which `sys/` and `dev/` are.
        place: The port.

    Raises:
        DeviceBusy: Somebody else has it.
        DeviceGone: It isn't there, or went meanwhile, whatever went wrong then.
        HardwareError: It can't be opened, or what is done with it fails.
    """
    files = DeviceFiles(root, place)
    at_home = root == Path("/")
    try:
        node = files.node()
        with opened_node(
            node, f"{place.name} can't be opened", place, alone=True, is_real=at_home
        ) as descriptor:
            is_real = at_home or _has_driver(descriptor, place)
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)  # half a system has /dev/null
            others = holders_of(descriptor, node) if is_real or is_file else ()
            if others:
                raise busy(place, others)
            yield PortSession(place, files, descriptor, is_real=is_real)
    except (OSError, HardwareError) as error:
        if not files.is_there:
            text = f"{place.name} has vanished while it was worked on (card {place.card.address})"
            raise DeviceGone(text) from error
        if isinstance(error, OSError):
            raise translated(error, f"working on {place.name} failed") from error
        raise


def held_by(root: Path, place: PortPlace) -> str:
    """Who holds a port that nobody should have; empty if nobody does.

    The port is opened alone for a moment.

    Args:
        root: Folder below which `sys/` and `dev/` are.
        place: The port.

    Raises:
        HardwareError: It can't be opened, and not since somebody holds it.
    """
    node = DeviceFiles(root, place).node()
    try:
        with opened_node(node, f"{place.name} can't be opened", place, alone=True) as descriptor:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)  # below an injected root
    except DeviceBusy as error:
        return str(error)
    others = who_has(node) if is_file else ()
    return str(busy(place, others)) if others else ""


def _has_driver(descriptor: int, place: PortPlace) -> bool:
    """Whether a node below another root is one of the kernel's all the same: a host's, say."""
    if isinstance(descriptor, SimulatedNode):
        return False
    try:
        api_version(descriptor, CALLS[place.card.driver])
    except OSError:
        return False
    return True


@contextmanager
def opened_node(
    node: Path,
    what: str,
    place: PortPlace | None = None,
    *,
    alone: bool = False,
    is_real: bool = True,
) -> Iterator[int]:
    """A device node open for ioctls, errors of opening it told.

    Args:
        node: Its path.
        what: What can't be done if it can't be opened.
        place: The port that it is of, if it is one.
        alone: Whether nobody else may have it.
        is_real: Whether it is one of the kernel's; the driver of another one may be simulated.
    """
    try:
        descriptor = open_node(node, alone=alone)
    except OSError as error:
        if error.errno == errno.EBUSY and place is not None:
            raise busy(place, who_has(node)) from error
        raise translated(error, what) from error
    stood_in = not is_real and simulated.is_simulated(node)
    try:
        yield SimulatedNode.of(descriptor, node) if stood_in else descriptor
    finally:
        os.close(descriptor)


def busy(place: PortPlace, holders: tuple[Holder, ...]) -> DeviceBusy:
    """Says that a port is in use, and by whom."""
    who = named(holders) or "another process, which can't be seen from here"
    return DeviceBusy(f"{place.name} is in use by {who}: end that first, or delete its pod")


def translated(error: OSError, what: str) -> HardwareError:
    """What an error of the system says, as one of ours.

    Args:
        error: The error.
        what: What can't be done because of it, the start of a sentence.
    """
    reason = error.strerror or str(error)
    if error.errno == errno.EBUSY:
        return DeviceBusy(f"{what}: the driver says that somebody else uses it ({reason})")
    if error.errno in _GONE:
        return DeviceGone(f"{what}: it isn't there any more ({reason})")
    if error.errno in _FORBIDDEN:
        return HardwareError(f"{what}: user {os.geteuid()} may not ({reason})")
    if error.errno in _UNKNOWN:
        return DeviceRefused(f"{what}: its driver doesn't know how ({reason})")
    if error.errno == errno.EINVAL:
        return DeviceRefused(f"{what}: its driver doesn't take that ({reason})")
    return DeviceRefused(f"{what}: {reason}")
