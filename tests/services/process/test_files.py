import os
from pathlib import Path

import pytest

from services.process.files import open_regular, replace_file
from tests.support import disk_full_after


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_gets_its_content_and_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        for content in (b"old", b"new"):
            replace_file(tmp_path / "f", content, mode=0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "f").read_bytes() == b"new"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o644
    assert names(tmp_path) == ["f"]


def test_a_full_disk_leaves_what_was_there_and_nothing_beside_it(tmp_path: Path) -> None:
    replace_file(tmp_path / "f", b"old", mode=0o600)
    with disk_full_after(1000), pytest.raises(OSError, match="too large"):
        replace_file(tmp_path / "f", bytes(5000), mode=0o600)
    assert (tmp_path / "f").read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


def test_only_regular_files_are_opened_without_waiting_and_nothing_is_kept(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    before = descriptors()
    for _ in range(20):  # a plugin that asks again every few seconds would run out of descriptors
        for path in (tmp_path, tmp_path / "pipe", tmp_path / "link"):
            with pytest.raises(OSError, match=r"not a regular file|Too many levels"):
                open_regular(path)
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(tmp_path, follow_links=True)
    assert descriptors() <= before
    with open_regular(tmp_path / "link", follow_links=True) as file:
        assert file.read() == b"x"


def descriptors() -> set[str]:
    """Those that lead to a folder of a test's."""
    links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names
    return {link.name for link in links if link.is_symlink() and link.is_dir()}
