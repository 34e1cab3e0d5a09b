import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from services.devices.hardware.events import FPGA_SUBSYSTEMS, NODES, follow_card_events, is_relevant
from services.process.waits import Due
from tests.support import background, eventually_async

Wire = tuple[socket.socket, socket.socket]

CARD = "/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0"


def kernel(subsystem: str) -> bytes:
    """A message as the kernel sends it."""
    pairs = f"ACTION=add\0DEVPATH={CARD}\0SUBSYSTEM={subsystem}\0SEQNUM=4711\0"
    return f"add@{CARD}\0{pairs}".encode()


@pytest.mark.parametrize(
    ("subsystem", "expected"),
    [("fpga", True), ("pci", True), ("platform", True), ("net", False), ("fpga_other", False)],
)
def test_an_event_is_relevant_by_its_subsystem(subsystem: str, expected: bool) -> None:
    assert is_relevant(kernel(subsystem), FPGA_SUBSYSTEMS) is expected


def test_types_by_path_hear_of_each_device_with_a_node() -> None:
    gpio = kernel("gpio")
    assert not is_relevant(gpio + b"DEVNAME=gpiochip0\0", {"usb"})
    assert is_relevant(gpio + b"DEVNAME=gpiochip0\0", {"usb", NODES})
    assert not is_relevant(gpio, {"usb", NODES})


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Our end, not blocking, and the kernel's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


class Requests(Due):
    """Counts the rescans that are requested."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def request(self) -> None:
        self.count += 1


@asynccontextmanager
async def following(
    source: socket.socket, subsystems: Collection[str] = ("fpga", "pci", "mem")
) -> AsyncIterator[Requests]:
    """Follow events; the first rescan has been requested by then."""
    requests = Requests()
    followed = follow_card_events(requests, lambda: frozenset(subsystems), connect=lambda: source)
    async with background(followed):
        await eventually_async(lambda: requests.count == 1)
        yield requests


async def test_a_burst_requests_one_rescan(wire: Wire) -> None:
    async with following(wire[0]) as requests:
        for message in (kernel("net"), b"", bytes(range(128, 228)), *[kernel("fpga")] * 4):
            wire[1].send(message)
        await eventually_async(lambda: requests.count > 1)
        wire[1].send(kernel("fpga"))
        await eventually_async(lambda: requests.count > 2)
    assert requests.count == 3


async def test_the_first_event_of_a_new_device_type_counts(wire: Wire) -> None:
    subsystems: set[str] = set()
    async with following(wire[0], subsystems) as requests:
        await asyncio.sleep(0)  # it waits for an event
        subsystems.add("cuse")
        wire[1].send(kernel("cuse"))
        await eventually_async(lambda: requests.count == 2)


class Scripted(socket.socket):
    """A socket whose reads come to what a test says, each announced by a message on the wire."""

    def __init__(self, wire: socket.socket, *script: Exception | bytes) -> None:
        super().__init__(wire.family, wire.type, fileno=os.dup(wire.fileno()))
        self.setblocking(False)
        self._script = list(script)

    def recv(self, size: int, flags: int = 0) -> bytes:
        super().recv(size, flags)
        result = self._script.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


async def test_lost_events_may_have_been_about_a_card(wire: Wire) -> None:
    full = OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
    async with following(Scripted(wire[0], full, full, kernel("pci"))) as requests:
        for count in (2, 3, 4):
            wire[1].send(b".")
            await eventually_async(lambda: requests.count == count)  # noqa: B023 - awaited here


async def test_without_a_socket_or_with_one_that_breaks_the_periodic_scan_is_left(
    wire: Wire,
) -> None:
    def connect() -> socket.socket:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    source = Scripted(wire[0], OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN)))
    wire[1].send(b".")
    with capture_logs() as logs:
        for each in (connect, lambda: source):
            await follow_card_events(Requests(), lambda: FPGA_SUBSYSTEMS, connect=each)
    reasons = [each["reason"] for each in logs if each["log_level"] == "warning"]
    assert reasons == [os.strerror(errno.EPERM), os.strerror(errno.ENETDOWN)]
    assert source.fileno() == -1
