import asyncio
import ctypes
import errno
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.process import folder_watch
from services.process.folder_watch import FolderWatch, follow_folders
from simulator.cards import CardSpec, Rack
from tests.support import eventually_async

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Told:
    """Counts notifications; `after` waits for one that something makes."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1

    @asynccontextmanager
    async def after(self) -> AsyncIterator[None]:
        before = self.times
        yield
        await eventually_async(lambda: self.times > before, timeout=60, what="a notification")


@asynccontextmanager
async def watching(root: Path) -> AsyncIterator[Told]:
    told = Told()
    task = asyncio.create_task(follow_folders(root, told))
    await eventually_async(lambda: told.times == 1)
    yield told
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("driver", ["opae", "dfl"])
async def test_cards_that_come_and_go_are_told(tmp_path: Path, driver: str) -> None:
    rack = Rack(tmp_path)
    async with watching(tmp_path) as told:
        async with told.after():
            address = rack.add_card(CardSpec(driver, ports=2))
        async with told.after():
            virtual = rack.move_to_vf(address)
        async with told.after():
            rack.move_back(virtual)
        async with told.after():
            rack.remove_card(address)
        async with told.after():
            rack.add_card(CardSpec(driver))


async def test_folders_may_come_later_one_by_one(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with watching(root) as told:
        for folder in ("", "sys", "sys/class", "sys/class/fpga_region", "dev"):
            async with told.after():
                (root / folder).mkdir()
        async with told.after():
            (root / "sys/class/fpga_region/region0").mkdir()
        async with told.after():
            (root / "dev/dfl-port.0").touch()


async def test_folders_may_come_all_at_once(tmp_path: Path) -> None:
    async with watching(tmp_path) as told:
        async with told.after():
            (tmp_path / "sys/class/fpga_region/region0").mkdir(parents=True)
        async with told.after():
            (tmp_path / "sys/class/fpga_region/region1").mkdir()


async def test_the_root_may_be_removed_and_made_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for _ in range(3):
        (root / "dev").mkdir(parents=True)
        async with watching(root) as told:
            async with told.after():
                shutil.rmtree(root)
            async with told.after():
                (root / "dev").mkdir(parents=True)
            async with told.after():
                (root / "dev/dfl-port.0").touch()
            async with told.after():
                root.rename(tmp_path / "away")
            async with told.after():
                (root / "dev").mkdir(parents=True)
            async with told.after():
                (root / "dev/dfl-port.0").touch()
            before = told.times
            (tmp_path / "away/dev/dfl-port.1").touch()  # no business of ours any more
            async with told.after():
                (root / "dev/dfl-port.2").touch()
            assert told.times == before + 1
        shutil.rmtree(tmp_path / "away")
        shutil.rmtree(root)


async def test_it_is_known_which_folders_are_watched(tmp_path: Path) -> None:
    folder = tmp_path / "dev"
    folder.mkdir()
    watch = FolderWatch(tmp_path, Told(), {"dev": re.compile(".*")})
    assert watch.watches(folder)
    folder.rmdir()
    watch.readable()
    assert not watch.watches(folder)
    folder.mkdir()
    watch.renew()
    assert watch.watches(folder)
    watch.close()


async def test_other_names_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    async with watching(tmp_path) as told:
        for name in ("tmp", "sysx", "dev/null", "dev/xdfl-port.0", "dev/pts"):
            (tmp_path / name).touch()
        async with told.after():
            (tmp_path / "dev/intel-fpga-port.0").touch()
        assert told.times == 2


async def test_names_of_no_interest_wake_nobody(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    told = Told()
    watch = FolderWatch(tmp_path, told, folder_watch.FOLDERS)
    watch.readable()
    for name in ("tmp", "dev/null", "dev/a-longer-name-than-usual", "dev/xdfl-port.0"):
        (tmp_path / name).touch()
        (tmp_path / name).unlink()
    watch.readable()
    assert told.times == 0
    (tmp_path / "dev/null").touch()
    (tmp_path / "dev/dfl-port.0").touch()
    (tmp_path / "dev/null").unlink()
    watch.readable()
    watch.close()
    assert told.times == 1


async def test_a_file_in_a_folders_place_is_waited_out(tmp_path: Path) -> None:
    (tmp_path / "sys").touch()
    async with watching(tmp_path) as told:
        (tmp_path / "sys").unlink()
        async with told.after():
            (tmp_path / "sys").mkdir()
        async with told.after():
            (tmp_path / "sys/class").mkdir()


async def test_lost_events_may_have_been_about_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev").mkdir()
    told = Told()
    watch = FolderWatch(tmp_path, told, {"dev": re.compile("x")})
    overflow = (-1).to_bytes(4, "little", signed=True) + (0x4000).to_bytes(4, "little") + bytes(8)
    cut = overflow[:10]
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", lambda *_: overflow + cut)
        watch.readable()
    watch.readable()
    watch.close()
    assert told.times == 1


def count_watches(descriptor: int) -> int:
    return Path(f"/proc/self/fdinfo/{descriptor}").read_text().count("inotify wd:")


async def test_watches_do_not_add_up(tmp_path: Path) -> None:
    (tmp_path / "sys/class/fpga").mkdir(parents=True)
    told = Told()
    watch = FolderWatch(tmp_path, told, folder_watch.FOLDERS)
    there = count_watches(watch.descriptor)
    for number in range(50):
        (tmp_path / "sys/class").rename(tmp_path / f"sys/{number}")
        (tmp_path / "sys/class/fpga").mkdir(parents=True)
        watch.readable()
        watch.readable()
    assert there == count_watches(watch.descriptor) == 4
    watch.close()
    assert told.times >= 50


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class NoLibrary:
    """A C library in which a call fails."""

    def __init__(self, failing: str, code: int) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._failing = failing
        self._code = code

    def __call__(self, *_: object, **__: object) -> "NoLibrary":
        return self

    def __getattr__(self, name: str) -> object:
        if name != self._failing:
            return getattr(self._library, name)

        def fail(*_: object) -> int:
            ctypes.set_errno(self._code)
            return -1

        return fail


@pytest.mark.parametrize("failing", ["inotify_init1", "inotify_add_watch"])
async def test_without_watches_it_says_so_once_and_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", NoLibrary(failing, errno.ENOSPC))
    before = open_files()
    told = Told()
    with capture_logs() as logs:
        await follow_folders(tmp_path, told)
    assert told.times == 0
    assert [(line["log_level"], line["reason"]) for line in logs] == [
        ("warning", "No space left on device")
    ]
    assert open_files() <= before  # what others left may end meanwhile


async def test_watches_that_run_out_later_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev").mkdir()
    told = Told()
    watch = FolderWatch(tmp_path, told, folder_watch.FOLDERS)
    whole = watch._library
    with capture_logs() as logs:
        for library in (NoLibrary("inotify_add_watch", errno.ENOSPC),) * 2 + (whole,):
            monkeypatch.setattr(watch, "_library", library)
            (tmp_path / "dev/dfl-port.0").touch()
            watch.readable()
            (tmp_path / "dev/dfl-port.0").unlink()
            watch.readable()
    watch.close()
    assert told.times == 6
    assert [line["log_level"] for line in logs] == ["warning", "debug", "debug", "debug"]
    assert "No space left on device" in logs[0]["reason"]


async def test_a_folder_that_may_not_be_watched_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", NoLibrary("inotify_add_watch", errno.EACCES))
    watch = FolderWatch(tmp_path, Told(), folder_watch.FOLDERS)
    assert count_watches(watch.descriptor) == 0
    watch.close()
