"""Files that are whole or not there: written beside, synced, renamed.

A full disk, a kill or a power cut leaves the old file as it was. What a killed writer has left
beside it is removed by the next one of its name: writers that may be at work at once need two.
"""

import contextlib
import errno
import os
from pathlib import Path
from typing import BinaryIO


def replace_file(path: Path, content: bytes, *, mode: int, writer: str = "") -> None:
    """Give a file new content, all at once.

    Args:
        path: The file; its folder must be there.
        content: All of it.
        mode: Its permissions, whatever the umask.
        writer: A name for whoever hasn't the file alone, by a lock or as its only process.

    Raises:
        OSError: It can't be written; what was there is there still, and nothing beside it.
    """
    beside = path.with_name(f".{path.name}{writer and '.'}{writer}.new")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    try:
        write_new(beside, content, mode=mode)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    sync_folder(path.parent)


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file that isn't there yet, and have it on the disk.

    Raises:
        OSError: It is there, or can't be written; then a part of it may be.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def open_at_once(path: Path) -> BinaryIO:
    """Open a file for reading; of a pipe nobody is waited for, and a folder leaves nothing open.

    Raises:
        OSError: It can't be opened; `os.fdopen` would keep the descriptor of a folder.
    """
    return open(path, "rb", opener=_opened)


def _opened(path: str, _: int) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last; a file system that can't do that has no power cut to fear.

    Raises:
        OSError: The disk fails.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
