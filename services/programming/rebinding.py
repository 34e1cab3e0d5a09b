"""Rebinding the driver of a card, which takes the card's engine and ports away for a moment.

It is the only way to enable a port that the driver keeps disabled. Their names may change.
"""

import errno
import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from services.devices.hardware.pci import DEVICES
from services.devices.hardware.scan import DRIVER_BY_NAME, DRIVERS
from services.devices.model import Card, Inventory
from services.process.errors import DeviceBusy, DeviceRefused, HardwareError
from services.process.problem import Problem
from services.process.text import listing
from services.programming.host_state import HostState
from services.programming.ioctls import DriverCalls
from services.programming.port import (
    FORBIDDEN,
    DeviceFiles,
    EnginePlace,
    PortPlace,
    opened_node,
    translated,
)

REBIND_SECONDS: Final = 5.0
"""Within which the ports of a card are back after its driver was rebound."""

_REBIND_INTERVAL: Final = 0.05
_NAMED: Final = 8
"""Virtual functions that a message names."""
_PCI_DRIVERS: Final = "sys/bus/pci/drivers"
_WRITE: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW


def rebind_card(root: Path, inventory: Inventory, card: Card, calls: DriverCalls) -> None:
    """Unbind a card's driver and bind it again; the caller holds the card's lock.

    Raises:
        DeviceBusy: A process has a part of the card, or the card has virtual functions.
        HardwareError: It is on no PCI bus, this process may not, or the driver refuses the card.
    """
    card = inventory.physical(card)
    failed = _failed(card)
    if card.pci is None:
        raise HardwareError(f"{failed}: the card is on no PCI bus")
    address, module = card.address, DRIVER_BY_NAME[card.driver].module
    driver = root / _PCI_DRIVERS / module
    require_no_virtual_functions(root, card)
    if other := _overridden(root, address, (module,)):
        raise DeviceRefused(f"{failed}: {other}")
    # Both files first: a card that is unbound and can't be bound would be lost.
    with ExitStack() as stack:
        unbind, bind = (
            _opened(driver / name, card.name, stack, failed) for name in ("unbind", "bind")
        )
        _require_unused(root, card, calls, failed)
        # Linux crashes when a port is closed after its driver was unbound (seen with 6.1 and 6.12),
        # so nothing of the card stays open here either.
        again = f"; no driver serves the card until: accelbind fpga rebind {address}"
        orders = ((unbind, "unbound from", ""), (bind, "bound to", again))
        for descriptor, what, remedy in orders:
            try:
                os.write(descriptor, address.encode())
            except OSError as error:
                reason = f"{failed}: {address} can't be {what} {module} ({error.strerror})"
                raise DeviceRefused(f"{reason}; see dmesg{remedy}") from error


def is_unbound(root: Path, inventory: Inventory, address: str) -> bool:
    """Whether the PCI function at an address has no driver; not so if there is no function."""
    found = any(card.address == address for card in inventory.cards)
    return not found and has_no_driver(root, address)


def has_no_driver(root: Path, address: str) -> bool:
    """Whether there is a PCI function at an address, and it has no driver."""
    function = root / DEVICES.lstrip("/") / address
    return function.is_symlink() and not (function / "driver").is_symlink()


def unbound_cards(root: Path, gone: Iterable[str], host: HostState) -> tuple[Problem, ...]:
    """The problems of cards that were worked on and were not found, if they have no driver."""
    # Their driver refused them, or the process that rebound it was killed in between.
    return tuple(
        Problem("card-unbound", f"no driver serves card {each}: accelbind fpga rebind {each}")
        for each in gone
        # Twice, since it may be bound and its lock released meanwhile.
        if has_no_driver(root, each) and not host.is_locked(each) and has_no_driver(root, each)
    )


def bind_card(root: Path, address: str) -> None:
    """Bind a card that has no driver to the one that knows it; the caller holds the card's lock.

    Raises:
        HardwareError: This process may not, or no driver takes the card.
    """
    failed = f"card {address} can't be bound to its driver"
    modules = [each.module for each in DRIVERS]
    if other := _overridden(root, address, modules):
        raise DeviceRefused(f"{failed}: {other}")
    with ExitStack() as stack:
        for bind in (root / _PCI_DRIVERS / each / "bind" for each in modules):
            if not bind.exists():
                continue
            try:
                os.write(_opened(bind, address, stack, failed), address.encode())
            except OSError as error:
                if error.errno != errno.ENODEV:  # a driver that doesn't know it
                    raise DeviceRefused(f"{failed} ({error.strerror}); see dmesg") from error
            else:
                return
    raise DeviceRefused(f"{failed}: neither {' nor '.join(modules)} is loaded and knows it")


def _overridden(root: Path, address: str, modules: Collection[str]) -> str:
    """Why a function is meant for none of some drivers; empty if it isn't so."""
    file = root / DEVICES.lstrip("/") / address / "driver_override"
    with suppress(OSError):  # it is none of PCI's
        name = file.read_text().strip()
        if name not in ("", "(null)", *modules):
            return (
                f"its driver_override is {name}; clear that first: echo > /{file.relative_to(root)}"
            )
    return ""


def require_no_virtual_functions(root: Path, card: Card) -> None:
    """Raise DeviceBusy if a card has virtual functions, which its driver would remove."""
    folder = Path("sys/bus/pci/devices", card.address)
    try:
        has_some = (root / folder / "sriov_numvfs").read_text().strip() not in ("", "0")
    except OSError:
        return  # it can't have any
    if has_some:
        functions = sorted(each.readlink().name for each in (root / folder).glob("virtfn*"))
        named = f" ({listing(functions, most=_NAMED)})" if functions else ""
        raise DeviceBusy(
            f"{_failed(card)}: this would remove the virtual functions of {card.address}{named};"
            f" end what uses them, run echo 0 > /{folder}/sriov_numvfs, then try again"
        )


def unlisted_ports(root: Path, inventory: Inventory, card: Card) -> int:
    """How many ports a card says it has that are on no function, as after a release."""
    if card.fme is None:
        return 0
    number = DeviceFiles(root, EnginePlace(card, card.fme)).text("ports_num")
    return max(0, int(number) - len(inventory.ports(card))) if number.isdecimal() else 0


def announce_change(root: Path, card: Card) -> None:
    """Have the kernel send a uevent for a card, so that who follows them reads it again."""
    with suppress(OSError):  # it is read again anyway, later
        (root / "sys/bus/pci/devices" / card.address / "uevent").write_text("change")


def ports_afterwards(scan: Callable[[], Inventory], card: Card, expected: int) -> list[PortPlace]:
    """The ports of the card that is now in a card's place, once as many as expected are there."""
    deadline = time.monotonic() + REBIND_SECONDS
    while True:  # udev and the drivers of its parts may take a moment
        ports = _ports_at(scan(), card)
        is_whole = len(ports) >= expected and all(each.port.afu_id for each in ports)
        if is_whole or time.monotonic() > deadline:
            return ports
        time.sleep(_REBIND_INTERVAL)


def require_enabled(root: Path, place: PortPlace) -> None:
    """Raise DeviceRefused if a port is still disabled after its driver was rebound."""
    if DeviceFiles(root, place).unusable:
        raise DeviceRefused(
            f"{place.name} is still disabled after its driver was rebound, as when the card does"
            " not acknowledge the port's reset: see dmesg, then reset the card or its power"
        )


def enabled_ports(root: Path, ports: Iterable[PortPlace]) -> tuple[str, ...]:
    """The names of ports; raises as `require_enabled`."""
    names = []
    for each in ports:
        require_enabled(root, each)
        names.append(each.name)
    return tuple(names)


def _ports_at(inventory: Inventory, card: Card) -> list[PortPlace]:
    return [
        PortPlace(each, port, EnginePlace(each, each.fme) if each.fme else None)
        for each in inventory.cards
        if each.place == card.place
        for port in each.ports
    ]


def _failed(card: Card) -> str:
    return f"the driver of card {card.name} can't be rebound"


def _opened(path: Path, card: str, stack: ExitStack, failed: str) -> int:
    try:
        descriptor = os.open(path, _WRITE)
    except OSError as error:
        if error.errno in FORBIDDEN:
            raise HardwareError(
                f"{failed}: user {os.geteuid()} may not write {path} ({error.strerror}); as root on"
                f" the node: accelbind fpga rebind {card}"
            ) from error
        raise translated(error, f"{failed}: {path}") from error
    stack.callback(os.close, descriptor)
    return descriptor


def _require_unused(root: Path, card: Card, calls: DriverCalls, failed: str) -> None:
    """Open every part of a card alone, all at once, and close them again."""
    engine = EnginePlace(card, card.fme) if card.fme else None
    places: list[PortPlace | EnginePlace] = [PortPlace(card, port, engine) for port in card.ports]
    if engine is not None:
        places.append(engine)
    with ExitStack() as stack:
        for place in places:
            files, text = DeviceFiles(root, place), f"{failed}: {place.name}"
            if isinstance(place, PortPlace) and not files.has_driver:
                continue  # nobody can have it
            node = files.node()
            stack.enter_context(opened_node(node, text, place, alone=True, calls=calls))
