"""Atomic writes, and the files of a folder that others write.

A full disk, a kill or a power failure leaves the old file unchanged.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from services.process.errors import ExternalFailure

MISSING: Final = "it is missing"
"""How a file is found that isn't there."""


def replace_file(path: Path, content: bytes, *, mode: int) -> None:
    """Replace the content and the permissions of a file atomically."""
    replace_files({path: (content, mode)})


def replace_files(files: Mapping[Path, tuple[bytes, int]]) -> None:
    """As `replace_file`, for files of one folder: all are written before the first is replaced."""
    for path in files:
        discard_unfinished(path)
    try:
        for path, (content, mode) in files.items():
            write_new(_beside(path), content, mode=mode)
        for path in files:
            try:
                _beside(path).replace(path)
            except IsADirectoryError:
                path.rmdir()  # an empty one; runtimes make one for a mount that has no file
                _beside(path).replace(path)
    except BaseException:
        for path in files:
            discard_unfinished(path)
        raise
    # Only then are the renames on the disk.
    for folder in {path.parent for path in files}:
        sync_folder(folder)


def remove_any(path: Path) -> None:
    """Remove a file of any kind, or an empty folder; nothing need be there."""
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        path.rmdir()


def discard_unfinished(path: Path) -> None:
    """Remove what a killed writer left beside a file, if anything."""
    with contextlib.suppress(OSError):
        _beside(path).unlink()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a new file and sync it to the disk; after an OSError, a part of it may remain."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def open_regular(path: Path, *, follow_links: bool = False) -> BinaryIO:
    """Open a regular file for reading; anything else is an `OSError`."""
    # O_NONBLOCK: opening a pipe would wait for its writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if not follow_links:
        flags |= os.O_NOFOLLOW
    return open(path, "rb", opener=lambda name, _: _open_regular(name, flags))


def _open_regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return descriptor


def file_fault(path: Path, content: bytes, *, mode: int) -> str:
    """Why a file isn't there with this content and mode; empty if it is."""
    try:
        with open_regular(path) as file:
            if file.read(len(content) + 1) != content:
                return "it has another content"
            found = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        return f"it can't be read: {error.strerror or error}"
    return "" if found == mode else f"its mode is {found:o}"


def sync_folder(folder: Path) -> None:
    """Sync the renames in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of a file system in memory
            raise
    finally:
        os.close(descriptor)


SUFFIXES: Final = (".yaml", ".yml", ".json")


def yaml_files(directory: Path, *, what: str) -> list[Path]:
    """The files of a folder that count, by name; an error says that it is one of `what`.

    Raises:
        ExternalFailure: It can't be listed.
    """
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise ExternalFailure(f"the folder of {what} {directory}: {error.strerror}") from error
    # Without hidden ones, a mounted ConfigMap is read once: its files are links into `..data`.
    return [
        path
        for path in paths
        if path.name.lower().endswith(SUFFIXES) and not path.name.startswith(".")
    ]


def read_file(path: Path, limit: int) -> bytes:
    """The content of a regular file, of at most one byte more than the limit."""
    with open_regular(path, follow_links=True) as file:
        return file.read(limit + 1)
