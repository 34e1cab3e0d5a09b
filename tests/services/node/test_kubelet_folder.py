"""The kubelet's folder: its socket, ours, and the lock that decides which plugin serves."""

import asyncio
import fcntl
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from services.kubelet.sockets import Identity, identify
from services.node.kubelet_folder import KubeletFolder, NodeLock
from services.process.errors import KubeletError
from tests.support import background, eventually_async


@pytest.fixture
def path(short_dir: Path) -> Path:
    (short_dir / "device-plugins").mkdir()
    return short_dir / "device-plugins"


def make_anew(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()


def names(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()}


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def remake(path: Path) -> None:
    """What a kubelet does that restarts: on many file systems the inode is the same again."""
    before = identify(path)
    while identify(path) == before:  # within a tick of the file system's clock
        path.unlink()
        make_socket(path)


@asynccontextmanager
async def checking(path: Path) -> AsyncIterator[KubeletFolder]:
    """A folder that is checked, as long as the block lasts; it holds nothing after it."""
    folder = KubeletFolder(path, check_seconds=0.005)
    with closing(folder.lock):
        async with asyncio.timeout(60), background(folder.check_forever()):
            yield folder


async def is_active(folder: KubeletFolder) -> None:
    await folder.until(lambda: folder.lock.is_active)


async def replaced(folder: KubeletFolder, seen: Identity) -> None:
    await folder.until(lambda: folder.kubelet != seen)


# The kubelet's socket and ours -------------------------------------------------------------------


async def test_a_kubelet_is_seen_when_it_comes_goes_and_restarts(path: Path) -> None:
    kubelet = path / "kubelet.sock"
    async with checking(path) as folder:
        waiting = asyncio.create_task(folder.present())
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        make_socket(kubelet)
        assert await waiting == identify(kubelet)
        for _ in range(20):
            seen = await folder.present()
            remake(kubelet)
            await replaced(folder, seen)
        seen = await folder.present()
        kubelet.unlink()
        await replaced(folder, seen)
        assert folder.kubelet is None


async def test_who_is_about_to_register_gets_the_kubelet_of_now(path: Path) -> None:
    folder = KubeletFolder(path)  # which doesn't check by itself until it runs
    make_socket(path / "kubelet.sock")
    first = await folder.present()
    (path / "kubelet.sock").rename(path / "old")  # whose inode is not used again
    make_socket(path / "kubelet.sock")
    assert await folder.present() == identify(path / "kubelet.sock") != first


# Which plugin serves -----------------------------------------------------------------------------


async def test_a_folder_that_can_not_be_looked_at_is_waited_for(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = short_dir / "loop"  # fails as a folder does that may not be entered, for root too
    loop.symlink_to(loop)
    async with checking(loop / "device-plugins"):
        await eventually_async(lambda: "Too many levels" in capsys.readouterr().out)


async def test_without_a_folder_there_is_nothing_to_be_first_in_until_it_comes(path: Path) -> None:
    shutil.rmtree(path)
    async with checking(path) as one, checking(path) as other:
        await is_active(one)
        await is_active(other)
        make_anew(path)
        await eventually_async(lambda: one.lock.is_lost or other.lock.is_lost)
        assert [one.lock.is_active, other.lock.is_active].count(True) == 1


async def test_a_folder_that_is_made_again_is_locked_again(path: Path) -> None:
    async with checking(path) as folder:
        await is_active(folder)
        make_anew(path)
        folder.new_socket()
        other = NodeLock(path)
        other.check()
        assert other.waits_for
        assert folder.lock.waits_for == ""


async def test_a_loss_that_is_found_between_two_checks_wakes_who_waits_for_it(path: Path) -> None:
    async with checking(path) as folder:
        await is_active(folder)
        lost = asyncio.create_task(folder.until(lambda: folder.lock.is_lost))
        await asyncio.sleep(0)  # it waits
        make_anew(path)
        other = NodeLock(path)
        other.check()
        with pytest.raises(KubeletError, match="another accelbind was faster"):
            folder.lock.require()
        await lost
        other.close()


async def test_where_the_folder_can_not_be_locked_every_plugin_is_first_and_it_is_said_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    stale = path / "accelbind-0123abcd-7.sock"
    make_socket(stale)
    async with checking(path) as folder:
        await is_active(folder)
        folder.new_socket()
        assert stale.exists(), "another plugin may serve it"
    assert capsys.readouterr().out.count("[warning  ] the kubelet's folder can't be locked") == 1


async def test_the_first_removes_the_sockets_that_a_killed_plugin_left(path: Path) -> None:
    others = ["kubelet.sock", "nvidia.sock", "accelbind-x-1.sock", "accelbind-0123abcd-7.sock.bak"]
    for name in (*others, "accelbind-0123abcd-7.sock"):
        make_socket(path / name)
    (path / "accelbind-0123abcd-8.sock").write_text("no socket")
    async with checking(path) as folder:
        make_socket(folder.new_socket())
        left = names(path)
        await is_active(folder)
        assert names(path) == left - {"accelbind-0123abcd-7.sock"}
