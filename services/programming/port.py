"""Ports and engines: how they are found by name, the files of each, and a port opened alone."""

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.devices.hardware.scan import DRIVER_BY_NAME
from services.devices.hardware.sysfs import Sysfs
from services.devices.health import Failure, port_disabled, port_without_driver
from services.devices.model import Card, Fme, Inventory, Port
from services.process.errors import (
    DeviceBusy,
    DeviceGone,
    DeviceRefused,
    HardwareError,
    InvalidSettings,
)
from services.process.text import listing
from services.programming.ioctls import IOCTLS, DriverCalls, DriverNode, holders_of

_NAME: Final = re.compile(r"[a-z0-9.:-]{1,64}")
_ADDRESS: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_WRITE: Final = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_DEVICES_NAMED: Final = 8
"""Devices that a message names."""


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """A management engine and the card it is on."""

    card: Card
    fme: Fme

    @property
    def name(self) -> str:
        """Its name, `dfl-fme.0`."""
        return self.fme.name


@dataclass(frozen=True, slots=True)
class PortPlace:
    """A port, the card it is on, and the engine that programs it."""

    card: Card
    """The card that the port is on, which may be a virtual function."""
    port: Port
    engine: EnginePlace | None
    """On this card or on that of the physical function; None if it is unknown."""

    @property
    def name(self) -> str:
        """Its name, `dfl-port.0`."""
        return self.port.name

    @property
    def interface_id(self) -> str:
        """The interface id that a bitstream must fit; empty if it is unknown."""
        return self.engine.fme.interface_id if self.engine else ""

    @property
    def record_key(self) -> str:
        """Identify the port in `PortRecords`, whatever its name in this boot."""
        return self.card.record_key(self.port)

    @property
    def is_released(self) -> bool:
        """Whether it is released to a virtual function, and its driver then can't program it."""
        driver = DRIVER_BY_NAME[self.card.driver]
        return bool(self.card.physical_address) and not driver.programs_virtual


def device_name(shown: str) -> str:
    """The device that the user named: as in sysfs, by its PCI address, or as a path or link."""
    path = Path(os.path.realpath(shown) if "/" in shown else shown)
    match = _NAME.fullmatch(path.name.lower())  # drivers have no capitals in their names
    if match is None:
        raise DeviceGone(f"{shown!r} is not an FPGA device: name one as 'accelbind fpga list' does")
    address = _ADDRESS.fullmatch(match[0])
    return f"{address[1] or '0000'}:{address[2]}" if address else match[0]


def find_port(inventory: Inventory, name: str) -> PortPlace:
    """A port of a node, by its name or its node."""
    wanted = device_name(name)
    for card in inventory.cards:
        for port in card.ports:
            if port.name == wanted:
                return PortPlace(card, port, _engine_of(inventory, card))
    ports = [port.name for card in inventory.cards for port in card.ports]
    raise DeviceGone(_nothing(inventory, f"port {wanted}", "ports", ports))


def find_engine(inventory: Inventory, name: str) -> EnginePlace:
    """A management engine of a node, also by its card, or by a virtual function of that."""
    wanted = device_name(name)
    card = _card_called(inventory, wanted)
    engine = _engine_of(inventory, card) if card else None
    if engine is not None:
        return engine
    engines = [card.fme.name for card in inventory.cards if card.fme]
    raise DeviceGone(_nothing(inventory, f"FME {wanted}", "FMEs", engines))


def find_device(inventory: Inventory, name: str) -> PortPlace | EnginePlace:
    """A port or an engine; a card stands for its engine, or without one for its only port."""
    wanted = device_name(name)
    card = _card_called(inventory, wanted)
    if card is not None and card.fme is not None:
        return EnginePlace(card, card.fme)
    return find_port(inventory, port_meant(inventory, wanted))


def find_card(inventory: Inventory, name: str) -> Card:
    """The card of a port or an engine; of a virtual function, the one it was split from."""
    return inventory.physical(find_device(inventory, name).card)


def port_meant(inventory: Inventory, name: str) -> str:
    """The name of the port that the user means: a card or an engine stands for its only port."""
    wanted = device_name(name)
    card = _card_called(inventory, wanted)
    if card is None:
        return wanted
    own = card.ports if wanted in (card.address, card.name) else ()
    ports = own or inventory.ports(find_engine(inventory, wanted).card)
    if len(ports) != 1:
        has = listing([port.name for port in ports]) if ports else "no port"
        raise InvalidSettings(f"{wanted} has {has}, and one is needed: name the port")
    return ports[0].name


def _card_called(inventory: Inventory, wanted: str) -> Card | None:
    for card in inventory.cards:
        if wanted in (card.address, card.name) or (card.fme and card.fme.name == wanted):
            return card
    return None


def _engine_of(inventory: Inventory, card: Card) -> EnginePlace | None:
    physical = inventory.physical(card)  # a virtual function has no engine
    return EnginePlace(physical, physical.fme) if physical.fme else None


def _nothing(inventory: Inventory, wanted: str, kind: str, names: list[str]) -> str:
    sentence = f"there is no {wanted} on this node"
    reasons = [card.failure.text for card in inventory.cards if card.failure]
    if names:
        sentence += f"; its {kind} are {listing(names, most=_DEVICES_NAMED)}"
    else:
        reasons = [problem.text for problem in inventory.problems] + reasons
    return f"{sentence}: {'; '.join(reasons)}" if reasons else sentence


class DeviceFiles:
    """The files of a port or an engine, below its folder as it was when this was made.

    Reloading the driver or replacing the card makes another folder. Then this one is gone, even if
    another device has its name now, and making another raises `DeviceGone`.
    """

    def __init__(self, root: Path, place: PortPlace | EnginePlace) -> None:
        self._files = Sysfs(root)
        self._root = root
        cards = DRIVER_BY_NAME[place.card.driver].folder
        folder = self._files.resolve(f"{cards}/{place.card.name}/{place.name}")
        inode = self._files.inode(folder) if folder else None
        if folder is None or inode is None:
            raise DeviceGone(f"{place.name} is gone")
        self.name = place.name
        self.folder: str = folder
        self.inode: int = inode

    @property
    def is_there(self) -> bool:
        """Whether the device is still the one it was."""
        return self._files.inode(self.folder) == self.inode

    @property
    def has_driver(self) -> bool:
        """Whether a driver serves this port."""
        return self.path("id") is not None or self.path("afu_id") is not None

    @property
    def is_disabled(self) -> bool:
        """Whether this port doesn't show its function because its driver keeps it disabled."""
        return self._files.read(f"{self.folder}/afu_id").failure is Failure.BUSY

    @property
    def unusable(self) -> str:
        """Why this port can't be used until its card's driver is rebound; empty if it can."""
        if self.is_disabled:
            return port_disabled(self.name)
        return "" if self.has_driver else port_without_driver(self.name).text

    def text(self, file: str) -> str:
        """The content of an attribute, empty if it can't be read."""
        return self._files.text(f"{self.folder}/{file}")

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder of it, sorted; empty if it can't be listed."""
        return sorted(self._files.names_if_listable(f"{self.folder}/{folder}".rstrip("/")))

    def path(self, file: str) -> Path | None:
        """Where an attribute is on this system, None if it isn't there."""
        resolved = self._files.resolve(f"{self.folder}/{file}")
        return self._root / resolved.lstrip("/") if resolved else None

    def write(self, file: str, content: bytes) -> None:
        """Write an attribute; raises `OSError`."""
        path = self.path(file)
        if path is None:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        descriptor = os.open(path, _WRITE)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            os.write(descriptor, content)  # in one go: a driver takes each write as a value
        finally:
            os.close(descriptor)

    def node(self) -> Path:
        """Where its device node is on this system."""
        resolved = self._files.resolve(f"/dev/{self.name}")
        if resolved is None:
            raise HardwareError(f"there is no /dev/{self.name}: is the driver loaded?")
        if self._files.is_host:
            return Path("/dev") / self.name
        return self._root / resolved.lstrip("/")


FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_GONE: Final = frozenset({errno.ENODEV, errno.ENXIO, errno.ENOENT})
_PROCESSES_NAMED: Final = 3
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


def check_not_released(place: PortPlace, engine: EnginePlace) -> None:
    """Raise DeviceRefused if the driver would program a port through a device that is gone."""
    # The in-tree driver programs through the port's device on the physical function. It deletes
    # that device when the port is released, and does not check for it when it programs
    # (`dfl_fpga_cdev_release_port` in `drivers/fpga/dfl.c`, `fme_bridge_enable_set` in
    # `drivers/fpga/dfl-fme-br.c`). A port on a virtual function is always a released one.
    if place.is_released:
        raise DeviceRefused(
            f"{place.name} can't be programmed: it is released to virtual function"
            f" {place.card.address}, and the in-tree driver programs only ports of the physical"
            f" function; set sriov_numvfs of {engine.card.address} to 0, then give the port back:"
            f" accelbind fpga assign {engine.name} --port {place.port.number}"
        )


def busy(place: PortPlace, holders: Sequence[str]) -> DeviceBusy:
    """The error for a port that is in use by processes."""
    who = "another process, which can't be seen from here"
    if holders:
        who = listing(holders, most=_PROCESSES_NAMED)
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
