"""Our CDI file in the folder that container runtimes read: whole and current."""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.process.files import discard_unfinished, replace_file

MODE: Final = 0o644
"""The runtime that reads it may run as any user."""


@dataclass(frozen=True, slots=True)
class CdiWrite:
    """The result of a write to the folder."""

    changed: bool = False
    """Whether the file has a new content, or is gone since there is nothing to describe."""
    error: str = ""
    """Why the file isn't as it should be, as a sentence."""
    lost: bool = False
    """Whether the content that was written last isn't there either."""


class CdiFolder:
    """Our file in a folder of CDI files. Its calls block."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / name
        self._last = b""

    def write(self, content: bytes) -> CdiWrite:
        """Make the folder hold our file with this content, or none if it is empty.

        Runtimes see the old file or the new one; the old one stays if it can't be written.
        """
        try:
            changed = self._replace(content) if content else self._remove()
        except OSError as error:
            lost = not self._last or not self._holds(self._last)
            return CdiWrite(error=self._sentence(content, error), lost=lost)
        self._last = content
        return CdiWrite(changed)

    def _replace(self, content: bytes) -> bool:
        if self._holds(content):
            discard_unfinished(self._path)
            return False
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, content, mode=MODE)
        return True

    def _remove(self) -> bool:
        discard_unfinished(self._path)
        if not os.path.lexists(self._path):  # in a read-only folder, removing nothing fails too
            return False
        self._path.unlink(missing_ok=True)
        return True

    def _holds(self, content: bytes) -> bool:
        """Whether the file is there, for everybody to read, with this content."""
        try:
            with open(self._path, "rb", opener=_open) as file:
                mode = os.fstat(file.fileno()).st_mode
                return mode == stat.S_IFREG | MODE and file.read(len(content) + 1) == content
        except OSError:
            return False

    def _sentence(self, content: bytes, error: OSError) -> str:
        folder, reason = self._path.parent, error.strerror or str(error)
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            reason += f" (as user {os.geteuid()}: let it write to {folder})"
        return f"{self._path} can't be {'written' if content else 'removed'}: {reason}"


def _open(path: str, _: int) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
