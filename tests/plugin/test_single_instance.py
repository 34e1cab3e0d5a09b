"""Of several plugins on a node one serves: the lock, the sockets, and real processes."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plugin.single_instance import SingleInstance
from services.process.blocking import BlockingCalls
from services.process.errors import KubeletError
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, container, pod
from tests.plugin.test_process import start
from tests.support import Process, Processes, eventually_async

pytestmark = pytest.mark.anyio

WAITS = "another accelbind plugin serves on this node: waiting until it ends"


@pytest.fixture
def folder(short_dir: Path) -> Path:
    (short_dir / "device-plugins").mkdir()
    return short_dir / "device-plugins"


@asynccontextmanager
async def looking(folder: Path) -> AsyncIterator[SingleInstance]:
    """One that looks, as long as the block lasts, and holds nothing after it."""
    calls = BlockingCalls()
    made = SingleInstance(folder, calls, check_seconds=0.01)
    task = asyncio.create_task(made.check_forever())
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        made.close()


@contextlib.contextmanager
def served(path: Path) -> Iterator[None]:
    """A socket that somebody serves, as a plugin of before there was a lock has."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield
    path.unlink()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def make(folder: Path) -> None:
    folder.mkdir()


async def is_first(made: SingleInstance) -> None:
    async with asyncio.timeout(60):
        await made.first()


async def waits(made: SingleInstance) -> None:
    await eventually_async(lambda: made.waits_for)


async def test_of_two_the_first_serves_and_the_second_as_soon_as_it_has_ended(
    folder: Path,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with looking(folder) as first:
            await is_first(first)
            second = await stack.enter_async_context(looking(folder))
            await waits(second)
            first.claim()
            with pytest.raises(KubeletError, match="another accelbind plugin serves on this node"):
                second.claim()
        await is_first(second)
        assert second.waits_for == ""


async def test_nothing_is_left_in_the_folder(folder: Path) -> None:
    async with looking(folder) as made:
        await is_first(made)
        assert names(folder) == []


async def test_without_a_folder_there_is_nothing_to_be_first_in_until_it_comes(
    folder: Path,
) -> None:
    shutil.rmtree(folder)
    async with looking(folder) as one, looking(folder) as other:
        await is_first(one)
        await is_first(other)
        make(folder)
        async with asyncio.timeout(60):
            await asyncio.wait(
                [asyncio.create_task(each.second()) for each in (one, other)],
                return_when=asyncio.FIRST_COMPLETED,
            )
        assert [bool(each.waits_for) for each in (one, other)].count(True) == 1


async def test_a_folder_that_is_made_anew_is_locked_anew(folder: Path) -> None:
    async with looking(folder) as made:
        await is_first(made)
        shutil.rmtree(folder)
        make(folder)

        def locked() -> bool:
            made.claim()
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
            return False

        await eventually_async(locked)
        assert made.waits_for == ""


async def test_a_plugin_of_before_there_was_a_lock_is_waited_for(folder: Path) -> None:
    with served(folder / "accelbind-00000000-1.sock"):
        async with looking(folder) as made:
            await waits(made)
    async with looking(folder) as made:
        await is_first(made)


async def test_where_the_folder_can_not_be_locked_sockets_are_looked_at_and_it_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = folder / "accelbind-00000000-1.sock"
    async with looking(folder) as made:
        with served(path):
            await waits(made)
        await is_first(made)
        made.claim()
    assert capsys.readouterr().out.count("can't be locked") == 1


async def test_who_has_the_lock_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        async with looking(folder) as made:
            await waits(made)
    finally:
        os.close(descriptor)
    out = capsys.readouterr().out
    assert f"process {os.getpid()}" in out
    assert out.count(WAITS) == 1


def waiting(plugins: list[Process]) -> list[Process]:
    return [each for each in plugins if each.stderr.count(WAITS)]


def sockets(folder: Path) -> list[Path]:
    return list((folder / "k/device-plugins").glob("accelbind-*.sock"))


async def test_of_plugins_that_start_in_the_same_instant_one_serves_and_a_kill_hands_over(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    processes: Processes,
    figure: Callable[[str], None],
) -> None:
    rack.add_card(CardSpec())
    plugins = [start(processes, short_dir) for _ in range(3)]
    await eventually_async(lambda: len(waiting(plugins)) == 2, timeout=60)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1}, timeout=60)
    admitted = await kubelet.settled(await kubelet.admit(pod("p", container("c", AF))))
    assert len(sockets(short_dir)) == 1
    assert [call.method for call in kubelet.calls].count("Registered") == 1
    [first] = [each for each in plugins if each not in waiting(plugins)]
    os.kill(first.pid, signal.SIGKILL)
    began = time.monotonic()
    await kubelet.until(lambda: kubelet.allocatable == {AF: 0})
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
    figure(f"the next one serves {time.monotonic() - began:.2f} s after a kill -9")
    assert len(sockets(short_dir)) == 1
    assert admitted["c"].running
    assert kubelet.in_use(AF) == {"dfl-port.0"}
    others = [each for each in waiting(plugins) if "the other plugin has ended" not in each.stderr]
    assert len(others) == 1, "the third one waits on"


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


async def test_a_second_plugin_waits_for_its_port_too_and_ends_when_told(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, processes: Processes, free_port: int
) -> None:
    rack.add_card(CardSpec())
    port = ("--metrics-port", str(free_port))
    plugins = [start(processes, short_dir, *port) for _ in range(3)]
    await eventually_async(lambda: len(waiting(plugins)) == 2, timeout=60)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1}, timeout=60)
    [first] = [each for each in plugins if each not in waiting(plugins)]
    second, third = waiting(plugins)
    await eventually_async(lambda: "Address already in use" in second.stderr, timeout=60)
    os.kill(second.pid, signal.SIGTERM)
    assert await asyncio.to_thread(second.wait) == 0
    os.kill(first.pid, signal.SIGKILL)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 0}, timeout=60)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1}, timeout=60)
    assert '"plugin starts"' in third.stderr
