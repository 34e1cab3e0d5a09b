import asyncio
import errno
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from plugin.kubelet_watch import KubeletWatch, identify

pytestmark = pytest.mark.anyio


def make_socket(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(path))


def remake(path: Path) -> None:
    """What a kubelet does that restarts: on many file systems the inode is the same again."""
    path.unlink()
    make_socket(path)


def without_links(path: Path, *, real: Any = os.stat, **how: Any) -> os.stat_result:
    """What `os.stat` would give if the file had no links."""
    found = real(path, **how)
    values = (*found[:3], 0, *found[4:])
    return os.stat_result((*values, *([0] * (os.stat_result.n_fields - len(values)))))


@asynccontextmanager
async def watching(folder: Path, check_seconds: float = 0.005) -> AsyncIterator[KubeletWatch]:
    watch = KubeletWatch(folder, check_seconds=check_seconds)
    task = asyncio.create_task(watch.watch())
    try:
        yield watch
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_kubelet_that_is_there_is_seen_at_once(short_dir: Path) -> None:
    make_socket(short_dir / "kubelet.sock")
    async with watching(short_dir) as watch, asyncio.timeout(60):
        assert await watch.present() == identify(short_dir / "kubelet.sock")


async def test_a_kubelet_that_comes_later_is_waited_for(short_dir: Path) -> None:
    folder = short_dir / "device-plugins"
    async with watching(folder) as watch, asyncio.timeout(60):
        waiting = asyncio.create_task(watch.present())
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        folder.mkdir()
        make_socket(folder / "kubelet.sock")
        await waiting


async def test_a_restart_is_seen_even_if_the_inode_is_the_same(short_dir: Path) -> None:
    make_socket(short_dir / "kubelet.sock")
    async with watching(short_dir) as watch, asyncio.timeout(60):
        for _ in range(20):
            seen = await watch.present()
            remake(short_dir / "kubelet.sock")
            await watch.replaced(seen)


async def test_a_kubelet_that_goes_is_seen(short_dir: Path) -> None:
    make_socket(short_dir / "kubelet.sock")
    async with watching(short_dir) as watch, asyncio.timeout(60):
        seen = await watch.present()
        (short_dir / "kubelet.sock").unlink()
        await watch.replaced(seen)
        assert watch.current is None


async def test_the_folder_may_go_and_come_back(short_dir: Path) -> None:
    folder = short_dir / "device-plugins"
    folder.mkdir()
    make_socket(folder / "kubelet.sock")
    async with watching(folder) as watch, asyncio.timeout(60):
        seen = await watch.present()
        shutil.rmtree(folder)
        await watch.replaced(seen)
        folder.mkdir()
        make_socket(folder / "kubelet.sock")
        await watch.present()


async def test_a_folder_that_is_being_removed_is_not_one_that_is_mounted(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat
    watch = KubeletWatch(short_dir)
    monkeypatch.setattr(os, "stat", without_links)
    monkeypatch.setattr(Path, "stat", lambda _path: real(short_dir / "gone"))
    watch._check()
    assert not watch._removed.is_set()


async def test_where_folders_never_have_links_none_was_removed(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_with_links = KubeletWatch(short_dir)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", without_links)
        watch = KubeletWatch(short_dir)
        for each in (watch, seen_with_links):
            each._check()
        assert not watch._removed.is_set()
        assert seen_with_links._removed.is_set()
    watch._check()
    monkeypatch.setattr(os, "stat", without_links)
    watch._check()
    assert watch._removed.is_set()


async def test_a_folder_that_is_made_again_is_looked_at(short_dir: Path) -> None:
    folder = short_dir / "device-plugins"
    folder.mkdir()
    make_socket(folder / "kubelet.sock")
    async with watching(folder) as watch, asyncio.timeout(60):
        for _ in range(3):
            seen = await watch.present()
            shutil.rmtree(folder)
            folder.mkdir()
            make_socket(folder / "kubelet.sock")
            await watch.replaced(seen)


async def test_our_socket_is_guarded(short_dir: Path) -> None:
    make_socket(short_dir / "kubelet.sock")
    make_socket(short_dir / "ours.sock")
    async with watching(short_dir) as watch, asyncio.timeout(60):
        with watch.guard(short_dir / "ours.sock", asyncio.Event()) as gone:
            seen = await watch.present()
            remake(short_dir / "kubelet.sock")
            await watch.replaced(seen)
            assert not gone.is_set()
            (short_dir / "ours.sock").unlink()
            await gone.wait()


async def test_another_socket_in_the_place_of_ours_is_not_ours(short_dir: Path) -> None:
    make_socket(short_dir / "ours.sock")
    async with watching(short_dir) as watch, asyncio.timeout(60):
        with watch.guard(short_dir / "ours.sock", asyncio.Event()) as gone:
            make_socket(short_dir / "other.sock")
            (short_dir / "other.sock").rename(short_dir / "ours.sock")
            await gone.wait()


async def test_a_socket_that_was_gone_before_it_was_guarded_is_gone(short_dir: Path) -> None:
    watch = KubeletWatch(short_dir)
    with watch.guard(short_dir / "ours.sock", asyncio.Event()) as gone:
        assert gone.is_set()


async def test_a_folder_that_can_not_be_listed_has_no_kubelet_and_says_why(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(_path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied")

    make_socket(short_dir / "kubelet.sock")
    monkeypatch.setattr(os, "scandir", denied)
    async with watching(short_dir) as watch:
        done, _ = await asyncio.wait(
            [waiting := asyncio.ensure_future(watch.present())], timeout=0.05
        )
        assert not done
        waiting.cancel()
    assert capsys.readouterr().out.count("Permission denied") == 1


async def test_who_is_about_to_register_is_told_the_kubelet_of_now(short_dir: Path) -> None:
    watch = KubeletWatch(short_dir)  # which doesn't look by itself until it runs
    make_socket(short_dir / "kubelet.sock")
    first = await watch.present()
    (short_dir / "kubelet.sock").rename(short_dir / "old")  # whose inode is not given out again
    make_socket(short_dir / "kubelet.sock")
    assert await watch.present() == identify(short_dir / "kubelet.sock") != first


async def test_a_folder_in_which_nothing_happens_is_not_listed_again(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []
    scandir = os.scandir

    def noted(folder: Path) -> object:
        listed.append(folder)
        return scandir(folder)

    monkeypatch.setattr("plugin.kubelet_watch.os.scandir", noted)
    monkeypatch.setattr("plugin.kubelet_watch.SETTLED_NS", 0)
    watch = KubeletWatch(short_dir)
    (short_dir / "kubelet.sock").touch()
    watch._check()
    watch._check()
    watch._check()
    assert len(listed) == 1
    first = watch.current
    (short_dir / "kubelet.sock").unlink()
    watch._check()
    assert watch.current is None
    (short_dir / "kubelet.sock").touch()
    watch._check()
    assert watch.current not in {None, first}


async def test_a_folder_that_has_just_changed_is_listed_each_time(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugin.kubelet_watch.SETTLED_NS", 10**18)
    watch = KubeletWatch(short_dir)
    watch._check()
    assert watch._seen is None
    assert watch._is_new()
