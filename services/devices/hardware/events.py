"""When to rescan the cards: the kernel reports devices that come and go as uevents.

A netlink socket gets a datagram for each event (netlink(7), NETLINK_KOBJECT_UEVENT): `KEY=value`
pairs, each closed by a NUL, behind a line with the device's path (`lib/kobject_uevent.c`). For what
they don't report (errors, heat, a new AFU) there is the periodic scan.
"""

import asyncio
import errno
import re
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import structlog

from services.devices.hardware.scan import DRIVERS
from services.process.waits import Due

KOBJECT_UEVENT: Final = 15
"""NETLINK_KOBJECT_UEVENT of `linux/netlink.h`."""

KERNEL_GROUP: Final = 1
"""Group 2 is udev's, which repeats the same events later."""

MAX_MESSAGE: Final = 16 * 1024
"""Bytes; the kernel has 2 KiB of pairs, udev adds some of its own."""

BUFFER: Final = 1024 * 1024
"""Bytes that we ask the kernel to keep for us."""

AT_ONCE: Final = 1024
"""Messages that are read before anybody else gets a turn."""

PAUSE_SECONDS: Final = 0.02
"""Between two reads: a burst of events, such as a card's, is two scans at most."""

FPGA_SUBSYSTEMS: Final = frozenset(
    {
        # Ports and engines are platform devices.
        *("fpga_manager", "fpga_bridge", "dfl", "pci", "platform", "vfio"),
        *(driver.folder.rpartition("/")[2] for driver in DRIVERS),
    }
)

NODES: Final = "*"
"""In the place of a subsystem: all devices that have a node."""

_SUBSYSTEM: Final = re.compile(rb"SUBSYSTEM=([^\0]*)")

log = structlog.get_logger(component="card-events")


def is_relevant(message: bytes, subsystems: Collection[str]) -> bool:
    """Whether an event may be about a device of a subsystem."""
    # Only searched, and its sender isn't checked: at worst there is a scan too many.
    subsystem = _SUBSYSTEM.search(message)
    if NODES in subsystems and b"\0DEVNAME=" in message:
        return True
    return subsystem is not None and subsystem[1].decode(errors="replace") in subsystems


def kernel_socket() -> socket.socket:
    """A socket that gets the kernel's uevents; it needs no privilege."""
    # The kernel sends to every network namespace of the initial user namespace, so to a pod's too,
    # unless it has `hostUsers: false`.
    opened = socket.socket(
        socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, KOBJECT_UEVENT
    )
    try:
        opened.setblocking(False)  # noqa: FBT003 - the standard library's signature
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        opened.bind((0, KERNEL_GROUP))
    except BaseException:
        opened.close()
        raise
    return opened


async def follow_card_events(
    rescan: Due,
    subsystems: Callable[[], Collection[str]],
    *,
    connect: Callable[[], socket.socket] = kernel_socket,
) -> None:
    """Request rescans in the event loop until cancelled; return when no uevents are to be had."""
    try:
        with connect() as source:
            rescan.request()  # for what happened before
            while True:
                if await _receive(source, subsystems):
                    rescan.request()
                await asyncio.sleep(PAUSE_SECONDS)
    except OSError as error:
        log.warning(
            "no uevents, new cards are found by the periodic scan",
            reason=error.strerror or str(error),
        )


async def _receive(source: socket.socket, subsystems: Callable[[], Collection[str]]) -> bool:
    """Wait for messages and read all that are there; whether one of them was about a card."""
    try:
        messages = [await asyncio.get_running_loop().sock_recv(source, MAX_MESSAGE)]
        with suppress(BlockingIOError):
            while len(messages) < AT_ONCE:
                messages.append(source.recv(MAX_MESSAGE))
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise
        # They came too fast, and may have been about a card.
        log.debug("uevents were lost")
        return True
    wanted = subsystems()  # now: while this waited, device types may have changed
    return any(is_relevant(each, wanted) for each in messages)
