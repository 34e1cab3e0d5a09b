"""The kernel's uevents over netlink, without udev and without a library.

A socket of the netlink family, protocol 15, subscribed to group 1, gets a datagram for each event
(netlink(7), NETLINK_KOBJECT_UEVENT). No privilege is needed. The kernel sends to every network
namespace of the initial user namespace, so to a pod's too, unless it has `hostUsers: false`.

When more comes than is read, the kernel drops events and says ENOBUFS: that counts as an event that
may be about anything. Without such a socket there are no events, and the timer has to do; that is
said once.

Who sent an event isn't asked: to send here takes CAP_NET_ADMIN in this network namespace, test beds
for devices don't tell who they are, and all that an event can do is to make us look.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from services.devices.uevents import MAX_MESSAGE, Uevent, is_relevant, may_matter, parse
from services.process.text import plain

KOBJECT_UEVENT: Final = 15
"""NETLINK_KOBJECT_UEVENT of `linux/netlink.h`."""
KERNEL_GROUP: Final = 1
"""Group 2 is udev's, which repeats the same events later."""
BUFFER: Final = 1024 * 1024
"""Asked for; the kernel gives as much of it as it likes."""
AT_A_TIME: Final = 64
"""Messages read before others get their turn."""

_TRUNCATED: Final = int(socket.MSG_TRUNC)
"""As a plain number: with the enum, a message that doesn't matter costs twice as much."""

_UID_MAP: Final = Path("/proc/self/uid_map")
_ALL_USERS: Final = ["0", "0", "4294967295"]

log = structlog.get_logger(room="uevents")


def kernel_socket() -> socket.socket:
    """A socket that gets the kernel's uevents.

    Raises:
        OSError: This process can't have one.
    """
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


def sees_all_users(uid_map: Path = _UID_MAP) -> bool:
    """Whether this process is in the initial user namespace, outside of which no uevent comes.

    Args:
        uid_map: The kernel's file about it; one that can't be read says nothing against it.
    """
    try:
        return uid_map.read_text(encoding="ascii").split() == _ALL_USERS
    except OSError:
        return True


async def follow_uevents(
    notify: Callable[[], None],
    *,
    connect: Callable[[], socket.socket] = kernel_socket,
    worth_parsing: Callable[[bytes], bool] = may_matter,
    relevant: Callable[[Uevent], bool] = is_relevant,
) -> None:
    """Tells of uevents until cancelled; returns when there are none to be had.

    It also tells once when it starts to listen: what happened before is otherwise not seen until
    the timer looks.

    Args:
        notify: Called for each event that matters, and when events were lost.
        connect: Opens the socket.
        worth_parsing: Whether a message may be of an event that matters.
        relevant: Whether an event matters.
    """
    try:
        source = connect()
    except OSError as error:
        _unavailable(error)
        return
    with source:
        listener = _Listener(source, notify, worth_parsing, relevant)
        loop = asyncio.get_running_loop()
        loop.add_reader(source, listener.readable)
        try:
            notify()
            await listener.broken.wait()
        finally:
            loop.remove_reader(source)


class _Listener:
    """Reads what a socket has, whenever it has something."""

    def __init__(
        self,
        source: socket.socket,
        notify: Callable[[], None],
        worth_parsing: Callable[[bytes], bool],
        relevant: Callable[[Uevent], bool],
    ) -> None:
        self.broken = asyncio.Event()
        """Set once nothing can be read any more."""
        self._source = source
        self._notify = notify
        self._worth_parsing = worth_parsing
        self._relevant = relevant

    def readable(self) -> None:
        for _ in range(AT_A_TIME):
            try:
                message, _, flags, _ = self._source.recvmsg(MAX_MESSAGE)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._failed(error)
                return
            self._take(message, cut=bool(flags & _TRUNCATED))

    def _take(self, message: bytes, *, cut: bool) -> None:
        event = parse(message) if self._worth_parsing(message) else None
        if event is None or not self._relevant(event):
            if cut:
                self._notify()  # what was cut off might have said that it matters
            return
        self._notify()
        log.debug(
            "uevent",
            action=plain(event.action),
            subsystem=event.subsystem,
            devpath=plain(event.devpath, 300),
        )

    def _failed(self, error: OSError) -> None:
        if error.errno == errno.ENOBUFS:
            log.debug("uevents were lost, all is looked at")
            self._notify()
            return
        _unavailable(error)
        asyncio.get_running_loop().remove_reader(self._source)
        self.broken.set()


def _unavailable(error: OSError) -> None:
    log.warning(
        "no uevents: cards that come and go are seen by the timer",
        reason=error.strerror or str(error),
    )
