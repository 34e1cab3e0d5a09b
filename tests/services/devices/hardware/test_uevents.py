import asyncio
import errno
import os
import re
import socket
import struct
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.devices.hardware import uevents
from services.devices.hardware.uevents import follow_uevents, kernel_socket, sees_all_users
from services.devices.uevents import Uevent, is_relevant
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

PAIRS = b"ACTION=add\0DEVPATH=/devices/x\0SUBSYSTEM=fpga\0"
KERNEL = b"add@/devices/x\0" + PAIRS
UDEV = struct.pack(">8sI", b"libudev\0", 0xFEEDCAFE) + struct.pack("=III", 40, 40, len(PAIRS))
UDEV += bytes(16) + PAIRS
OTHER = KERNEL.replace(b"fpga", b"net")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Heard:
    """Counts what a listener tells."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def wire() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end, not blocking, and the kernel's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@asynccontextmanager
async def listening(source: Any, **more: Any) -> AsyncIterator[Heard]:
    """A listener that has begun to listen; it has told once by then."""
    heard = Heard()
    task = asyncio.create_task(follow_uevents(heard, connect=lambda: source, **more))
    await eventually_async(lambda: heard.times == 1)
    yield heard
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("message", [KERNEL, UDEV])
async def test_events_of_either_format_are_told(
    wire: tuple[socket.socket, socket.socket], message: bytes
) -> None:
    async with listening(wire[0]) as heard:
        for times in (2, 3, 4):
            wire[1].send(message)
            await eventually_async(lambda: heard.times == times)  # noqa: B023 - awaited here
    assert heard.times == 4


async def test_events_about_other_things_and_other_bytes_are_not_told(
    wire: tuple[socket.socket, socket.socket],
) -> None:
    async with listening(wire[0]) as heard:
        for message in (
            OTHER,
            b"",
            b"\0",
            b"libudev\0",
            bytes(range(128, 228)),
            KERNEL[:20],
            KERNEL,
        ):
            wire[1].send(message)
        await eventually_async(lambda: heard.times >= 2)
    assert heard.times == 2


async def test_an_event_that_is_too_long_may_be_about_anything(
    wire: tuple[socket.socket, socket.socket],
) -> None:
    async with listening(wire[0]) as heard:
        wire[1].send(OTHER + b"x" * 20_000)
        await eventually_async(lambda: heard.times == 2)
    assert heard.times == 2


async def test_others_get_their_turn_in_a_flood(
    wire: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uevents, "AT_A_TIME", 3)
    async with listening(wire[0]) as heard:
        for _ in range(5):
            wire[1].send(KERNEL)
        await eventually_async(lambda: heard.times > 1, interval=0)
        assert heard.times == 4
        await eventually_async(lambda: heard.times == 6)


class Scripted(socket.socket):
    """A socket whose reads come to what a test says, each announced by a message on the wire."""

    def __init__(self, wire: socket.socket, *script: object) -> None:
        super().__init__(wire.family, wire.type, fileno=os.dup(wire.fileno()))
        self.setblocking(False)
        self.script = list(script)

    def recvmsg(self, *sizes: int) -> Any:
        super().recvmsg(*sizes)
        told = self.script.pop(0)
        if isinstance(told, BaseException):
            raise told
        return told


async def test_lost_events_may_have_been_about_anything(
    wire: tuple[socket.socket, socket.socket],
) -> None:
    full = OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
    source = Scripted(wire[0], full, full, (KERNEL, [], 0, (0, 1)))
    async with listening(source) as heard:
        for times in (2, 3, 4):
            wire[1].send(b".")
            await eventually_async(lambda: heard.times == times)  # noqa: B023 - awaited here
    assert heard.times == 4


@pytest.mark.parametrize("sender", [(0, 1), None, "", (4711, 1)])
async def test_an_event_counts_whoever_sent_it(
    wire: tuple[socket.socket, socket.socket], sender: object
) -> None:
    source = Scripted(wire[0], (KERNEL, [], 0, sender))
    async with listening(source) as heard:
        wire[1].send(b".")
        await eventually_async(lambda: heard.times == 2)


async def test_a_socket_that_breaks_ends_the_listening_and_is_said(
    wire: tuple[socket.socket, socket.socket],
) -> None:
    source = Scripted(wire[0], OSError(errno.ENETDOWN, "Network is down"))
    heard = Heard()
    with capture_logs() as logs:
        task = asyncio.create_task(follow_uevents(heard, connect=lambda: source))
        await eventually_async(lambda: heard.times == 1)
        wire[1].send(b".")
        await asyncio.wait_for(task, 60)
    assert [(line["log_level"], line["reason"]) for line in logs] == [
        ("warning", "Network is down")
    ]
    assert source.fileno() == -1


@pytest.mark.parametrize("code", [errno.EPERM, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT])
async def test_without_a_socket_it_says_so_once_and_returns(code: int) -> None:
    def connect() -> socket.socket:
        raise OSError(code, os.strerror(code))

    heard = Heard()
    with capture_logs() as logs:
        await follow_uevents(heard, connect=connect)
    assert heard.times == 0
    assert [line["reason"] for line in logs] == [os.strerror(code)]
    assert "timer" in logs[0]["event"]


async def test_a_cancelled_listener_closes_its_socket(
    wire: tuple[socket.socket, socket.socket],
) -> None:
    source = Scripted(wire[0])
    async with listening(source):
        assert source.fileno() != -1
    assert source.fileno() == -1


async def test_a_socket_that_can_not_be_bound_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Unbindable:
        closed = False

        def __init__(self, *_: object) -> None:
            made.append(self)

        def setblocking(self, _: bool) -> None: ...
        def setsockopt(self, *_: object) -> None: ...
        def bind(self, _: object) -> None:
            raise PermissionError(errno.EPERM, "no")

        def close(self) -> None:
            self.closed = True

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Unbindable)
        with pytest.raises(PermissionError):
            kernel_socket()
    assert [each.closed for each in made] == [True]


def own_socket() -> socket.socket:
    try:
        return kernel_socket()
    except OSError as error:
        pytest.skip(f"no netlink socket here: {error}")


async def test_a_real_socket_is_opened() -> None:
    with own_socket() as source:
        assert source.getsockname()[1] == 1
        assert not source.getblocking()
        with pytest.raises(BlockingIOError):
            source.recv(1)


def ask_for_an_event(asked: Path) -> None:
    asked.write_text(f"change {uuid.uuid4()}")


async def test_the_kernels_own_events_arrive() -> None:
    """The kernel sends an event about a device that is there anyway when it is asked to."""
    asked = Path("/sys/class/mem/null/uevent")
    if not os.access(asked, os.W_OK):
        pytest.skip(f"{asked} can't be written")
    if not sees_all_users():
        pytest.skip("no uevent reaches this user namespace")
    seen: list[Uevent] = []

    def note(event: Uevent) -> bool:
        seen.append(event)
        return event.subsystem == "mem"

    async with listening(own_socket(), worth_parsing=bool, relevant=note) as heard:
        ask_for_an_event(asked)
        await eventually_async(lambda: heard.times >= 2)
    assert Uevent("change", "/devices/virtual/mem/null", "mem") in seen
    assert not any(is_relevant(event) for event in seen if event.subsystem == "mem")


@pytest.mark.parametrize(
    ("content", "all_users"),
    [
        ("         0          0 4294967295\n", True),
        ("         0     100000      65536\n", False),
        ("0 0 1\n1 100000 65535\n", False),
        ("", False),
        (None, True),
    ],
)
async def test_a_user_namespace_of_its_own_is_known(
    tmp_path: Path, content: str | None, all_users: bool
) -> None:
    file = tmp_path / "uid_map"
    if content is not None:
        file.write_text(content)
    assert sees_all_users(file) is all_users


async def test_events_are_logged_for_who_looks_closer(
    wire: tuple[socket.socket, socket.socket],
) -> None:
    with capture_logs() as logs:
        async with listening(wire[0]) as heard:
            wire[1].send(KERNEL.replace(b"/x", b"/\x1b[31m"))
            await eventually_async(lambda: heard.times == 2)
    (line,) = logs
    assert line["log_level"] == "debug"
    assert re.fullmatch(r"[ -~]+", line["devpath"])
