import os
from collections.abc import Callable
from pathlib import Path

import pytest

from services.devices.cdi_files import CdiFolder, CdiWrite
from tests.support import disk_full_after

NAME = "accelbind-fpga.json"
OLD = b'{"old": 1}\n'
NEW = b'{"new": 22}\n'


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_for_everybody_to_read_and_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "var" / "cdi"
    before = os.umask(0o077)
    try:
        done = CdiFolder(folder, NAME).write(NEW)
    finally:
        os.umask(before)
    assert done == CdiWrite(changed=True)
    assert names(folder) == [NAME]
    assert (folder / NAME).read_bytes() == NEW
    assert (folder / NAME).stat().st_mode & 0o777 == 0o644


def test_a_correct_file_is_not_written_again(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path, NAME)
    folder.write(NEW)
    inode = (tmp_path / NAME).stat().st_ino
    (tmp_path / f".{NAME}.new").write_bytes(b"of a plugin that was killed")
    assert folder.write(NEW) == CdiWrite()
    assert (tmp_path / NAME).stat().st_ino == inode
    assert names(tmp_path) == [NAME]


def wrong_mode(path: Path) -> None:
    path.write_bytes(NEW)
    path.chmod(0o600)


def link_elsewhere(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_bytes(OLD)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize(
    "found", [NEW[:-1], NEW + b"x", wrong_mode, link_elsewhere, os.mkfifo, os.mkdir]
)
def test_a_wrong_file_is_replaced(tmp_path: Path, found: bytes | Callable[[Path], None]) -> None:
    if isinstance(found, bytes):
        (tmp_path / NAME).write_bytes(found)
        (tmp_path / NAME).chmod(0o644)
    else:
        found(tmp_path / NAME)
    assert CdiFolder(tmp_path, NAME).write(NEW) == CdiWrite(changed=True)
    assert (tmp_path / NAME).read_bytes() == NEW
    assert not (tmp_path / NAME).is_symlink()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o644


def test_a_folder_or_file_in_the_way_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cdi" / NAME / "somebody's").mkdir(parents=True)
    (tmp_path / "file").touch()
    for folder, content, verb in (
        ("cdi", NEW, "written: Directory not empty"),
        ("cdi", b"", "removed: Directory not empty"),
        ("file", NEW, "written: File exists"),
    ):
        done = CdiFolder(tmp_path / folder, NAME).write(content)
        assert (done.changed, done.lost) == (False, True)
        assert f"{NAME} can't be {verb}" in done.error
    for folder in ("none", "file"):
        assert CdiFolder(tmp_path / folder, NAME).write(b"") == CdiWrite(), "it isn't there"
    assert not (tmp_path / "none").exists()


def test_an_empty_folder_in_its_place_is_removed(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    assert CdiFolder(tmp_path, NAME).write(b"") == CdiWrite(changed=True)
    assert names(tmp_path) == []


def test_a_file_without_devices_is_removed(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path, NAME)
    folder.write(NEW)
    (tmp_path / f".{NAME}.new").touch()  # of a writer that was killed
    assert folder.write(b"") == CdiWrite(changed=True)
    assert names(tmp_path) == []


def test_a_full_disk_leaves_the_old_file_whole_and_is_told(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path, NAME)
    folder.write(OLD)
    with disk_full_after(100):
        done = folder.write(NEW * 100, OLD)
    assert (done.changed, done.lost) == (False, False)
    assert f"{NAME} can't be written: File too large" in done.error
    assert (tmp_path / NAME).read_bytes() == OLD
    assert names(tmp_path) == [NAME]
    assert folder.write(NEW * 100) == CdiWrite(changed=True)
