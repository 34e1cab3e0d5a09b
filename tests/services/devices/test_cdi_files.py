import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.devices import cdi_files
from services.devices.cdi_files import CdiFolder, CdiWrite

NAME = "accelbind-fpga.json"
OLD = b'{"old": 1}\n'
NEW = b'{"new": 22}\n'


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def disk_full_after(size: int) -> Iterator[None]:
    """No file may grow beyond this: the system writes what fits, and then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_written_for_everybody_to_read_and_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "var" / "cdi"
    before = os.umask(0o077)
    try:
        done = CdiFolder(folder).write(NEW)
    finally:
        os.umask(before)
    assert done == CdiWrite(written=True)
    assert names(folder) == [NAME]
    assert (folder / NAME).read_bytes() == NEW
    assert (folder / NAME).stat().st_mode & 0o777 == 0o644


def test_what_is_right_already_is_left_alone(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path)
    folder.write(NEW)
    inode = (tmp_path / NAME).stat().st_ino
    assert folder.write(NEW) == CdiWrite()
    assert (tmp_path / NAME).stat().st_ino == inode


def wrong_mode(path: Path) -> None:
    path.write_bytes(NEW)
    path.chmod(0o600)


def link_elsewhere(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_bytes(OLD)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize(
    "found", [b"", OLD, NEW[:-1], NEW + b"x", NEW.upper(), wrong_mode, link_elsewhere, os.mkfifo]
)
def test_what_is_wrong_is_replaced(tmp_path: Path, found: bytes | Callable[[Path], None]) -> None:
    if isinstance(found, bytes):
        (tmp_path / NAME).write_bytes(found)
        (tmp_path / NAME).chmod(0o644)
    else:
        found(tmp_path / NAME)
    assert CdiFolder(tmp_path).write(NEW) == CdiWrite(written=True)
    assert (tmp_path / NAME).read_bytes() == NEW
    assert not (tmp_path / NAME).is_symlink()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("folders", "file", "content", "problems"),
    [
        ([f"cdi/{NAME}"], "", NEW, [f"{NAME} can't be written: Is a directory"]),
        (["cdi/accelbind-x.json"], "", b"", ["accelbind-x.json can't be removed"]),
        ([], "cdi", NEW, ["can't be written", "can't be listed"]),
        ([], "", b"", []),
    ],
)
def test_what_stands_in_the_way_is_reported(
    tmp_path: Path, folders: list[str], file: str, content: bytes, problems: list[str]
) -> None:
    for each in folders:
        (tmp_path / each).mkdir(parents=True)
    if file:
        (tmp_path / file).write_bytes(b"")
    done = CdiFolder(tmp_path / "cdi").write(content)
    assert (done.written, done.removed, len(done.problems)) == (False, (), len(problems))
    for found, words in zip(done.problems, problems, strict=True):
        assert words in found
    assert (tmp_path / "cdi").exists() == bool(folders or file)


def test_stale_files_of_ours_are_removed_and_no_others(tmp_path: Path) -> None:
    others = ["intel.cdi.k8s.io-fpga.json", "accelbind.json", "accelbind-fpga.yaml", ".accelbind-x"]
    ours = ["accelbind-old.json", ".accelbind-old.json.new"]
    for name in [*others, *ours, NAME]:
        (tmp_path / name).write_bytes(OLD)
    done = CdiFolder(tmp_path).write(NEW)
    assert done == CdiWrite(written=True, removed=(".accelbind-old.json.new", "accelbind-old.json"))
    assert names(tmp_path) == sorted([*others, NAME])


def test_a_file_without_devices_is_removed(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path)
    folder.write(NEW)
    assert folder.write(b"") == CdiWrite(removed=(NAME,))
    assert names(tmp_path) == []


def test_a_full_disk_leaves_the_old_file_whole_and_is_told(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path)
    folder.write(OLD)
    with disk_full_after(100):
        done = folder.write(NEW * 100)
    assert (done.written, done.failed, done.lost) == (False, True, False)
    (problem,) = done.problems
    assert f"{NAME} can't be written: File too large" in problem
    assert (tmp_path / NAME).read_bytes() == OLD
    assert names(tmp_path) == [NAME]
    assert folder.write(NEW * 100) == CdiWrite(written=True)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_missing_permission_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(cdi_files, "replace_file", refuse)
    (problem,) = CdiFolder(tmp_path).write(NEW).problems
    assert os.strerror(code) in problem
    assert f"as user {os.geteuid()}: let it write to {tmp_path}" in problem
