"""Our CDI file in the folder that container runtimes read: whole, current, and nothing else.

The file is written beside its place and renamed into it, so that a runtime sees the old one or the
new one. If it can't be written (a full disk, a folder without permission), the old file stays.
`CdiFolder.write` does nothing if the right bytes are there already, so it can be called often.

Our files have names that start with `services.devices.cdi.FILE_PREFIX`. Those that are not wanted
any more, and the temporary files that a killed process left, are removed.
"""

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.devices.cdi import FILE_NAME, FILE_PREFIX
from services.process.files import replace_file

MODE: Final = 0o644
"""The runtime that reads it may run as any user."""

_OURS: Final = re.compile(rf"{FILE_PREFIX}[a-z0-9-]+\.json|\.{FILE_PREFIX}[a-z0-9-]+\.json\.new")
"""Ours, and halves of ours: hidden, and without a suffix that runtimes read."""


@dataclass(frozen=True, slots=True)
class CdiWrite:
    """The result of a write to the folder."""

    written: bool = False
    """Whether the file is new or has a new content."""
    removed: tuple[str, ...] = ()
    """Names of our files that were there and not wanted."""
    problems: tuple[str, ...] = ()
    """A sentence for each failure."""
    failed: bool = False
    """Whether the file should have been written and could not be."""
    lost: bool = False
    """Whether the content that was written last isn't there either."""


class CdiFolder:
    """Our file in a folder of CDI files. Its calls block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._last = b""

    def write(self, content: bytes) -> CdiWrite:
        """Make the folder hold our file with this content, or none if it is empty."""
        written = failed = lost = False
        problems: list[str] = []
        try:
            if content and not self._holds(content):
                self._folder.mkdir(parents=True, exist_ok=True)
                replace_file(self._path, content, mode=MODE)
                written = True
            self._last = content
        except OSError as error:
            problems.append(_sentence("written", self._path, error))
            failed = True
            lost = not self._last or not self._holds(self._last)
        removed = self._remove_others(problems, keep=bool(content))
        return CdiWrite(written, tuple(removed), tuple(problems), failed, lost)

    def _holds(self, content: bytes) -> bool:
        """Whether the file is there, for everybody to read, with this content."""
        try:
            with open(self._path, "rb", opener=_open) as file:
                mode = os.fstat(file.fileno()).st_mode
                return mode == stat.S_IFREG | MODE and file.read(len(content) + 1) == content
        except OSError:
            return False

    def _remove_others(self, problems: list[str], *, keep: bool) -> list[str]:
        """Remove what is ours, but for the file if it is wanted."""
        removed: list[str] = []
        try:
            names = sorted(path.name for path in self._folder.iterdir())
        except FileNotFoundError:
            return removed
        except OSError as error:
            problems.append(_sentence("listed", self._folder, error))
            return removed
        for name in names:
            if (keep and name == FILE_NAME) or not _OURS.fullmatch(name):
                continue
            try:
                (self._folder / name).unlink(missing_ok=True)
                removed.append(name)
            except OSError as error:
                problems.append(_sentence("removed", self._folder / name, error))
        return removed


def _open(path: str, _: int) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def _sentence(operation: str, path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        reason += (
            f" (as user {os.geteuid()}: let it write to {path.parent}, or leave out --cdi-dir)"
        )
    return f"{path} can't be {operation}: {reason}"
