"""Binding the driver of a card anew, which takes the card's engine and ports away for a moment.

It is the only way to enable a port that the driver keeps disabled. Their names may change.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from services.devices.hardware.scan import DRIVER_BY_NAME
from services.devices.model import Card, Inventory
from services.devices.topology import Topology
from services.process.errors import DeviceBusy, DeviceRefused, HardwareError
from services.process.text import listing
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
"""Within which the ports of a card are back after its driver was bound anew."""

_REBIND_INTERVAL: Final = 0.05
_NAMED: Final = 8
"""Virtual functions that a message names."""
_WRITE: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW


def rebind_card(root: Path, inventory: Inventory, card: Card, calls: DriverCalls) -> None:
    """Unbind a card's driver and bind it again; the caller holds the card's lock.

    Raises:
        DeviceBusy: A process has a part of the card, or the card has virtual functions.
        HardwareError: It is on no PCI bus, this process may not, or the driver refuses the card.
    """
    card = Topology(inventory.cards).physical(card)
    failed = _failed(card)
    if card.pci is None:
        raise HardwareError(f"{failed}: the card is on no PCI bus")
    address, module = card.address, DRIVER_BY_NAME[card.driver].module
    driver = root / "sys/bus/pci/drivers" / module
    require_no_virtual_functions(root, card)
    # Both files first: a card that is unbound and can't be bound would be lost.
    with ExitStack() as stack:
        unbind, bind = (_opened(driver / name, card, stack, failed) for name in ("unbind", "bind"))
        _require_unused(root, card, calls, failed)
        # Linux crashes when a port is closed after its driver was unbound (seen with 6.1 and 6.12),
        # so nothing of the card stays open here either.
        for descriptor, what in ((unbind, "unbound from"), (bind, "bound to")):
            try:
                os.write(descriptor, address.encode())
            except OSError as error:
                reason = f"{failed}: {address} can't be {what} {module}"
                raise DeviceRefused(f"{reason} ({error.strerror}); see dmesg") from error


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


def announce_change(root: Path, card: Card) -> None:
    """Have the kernel send a uevent for a card, so that who follows them reads it again."""
    with suppress(OSError):  # it is read again anyway, later
        (root / "sys/bus/pci/devices" / card.address / "uevent").write_text("change")


def ports_afterwards(scan: Callable[[], Inventory], card: Card) -> list[PortPlace]:
    """The ports of the card that is now in a card's place, once they are back."""
    deadline = time.monotonic() + REBIND_SECONDS
    while True:  # udev and the drivers of its parts may take a moment
        ports = _ports_at(scan(), card)
        is_whole = len(ports) == len(card.ports) and all(each.port.afu_id for each in ports)
        if is_whole or time.monotonic() > deadline:
            return ports
        time.sleep(_REBIND_INTERVAL)


def _ports_at(inventory: Inventory, card: Card) -> list[PortPlace]:
    return [
        PortPlace(each, port, EnginePlace(each, each.fme) if each.fme else None)
        for each in inventory.cards
        if each.place == card.place
        for port in each.ports
    ]


def _failed(card: Card) -> str:
    return f"the driver of card {card.name} can't be bound anew"


def _opened(path: Path, card: Card, stack: ExitStack, failed: str) -> int:
    try:
        descriptor = os.open(path, _WRITE)
    except OSError as error:
        if error.errno in FORBIDDEN:
            raise HardwareError(
                f"{failed}: user {os.geteuid()} may not write {path} ({error.strerror}); as root on"
                f" the node: accelbind fpga rebind {card.name}"
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
