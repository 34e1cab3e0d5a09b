"""Our CDI file in the folder that container runtimes read: whole and current."""

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from services.process.files import discard_unfinished, file_fault, remove_any, replace_file

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
    """Whether the last content isn't there either."""
    found: str = field(default="", compare=False)
    """Why the file that was there had to be written: `it is missing`."""


class CdiFolder:
    """Our file in a folder of CDI files. Its calls block."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name

    def write(self, content: bytes, last: bytes = b"") -> CdiWrite:
        """Make the folder hold our file with this content, or none if it is empty.

        Runtimes see the old file or the new one; the old one, with the `last` content, stays if it
        can't be written.
        """
        found = self.fault(content)
        try:
            changed = self._replace(content, found) if content else self._remove()
        except OSError as error:
            lost = not last or bool(self.fault(last))
            return CdiWrite(error=self._sentence(content, error), lost=lost, found=found)
        return CdiWrite(changed, found=found)

    def fault(self, content: bytes) -> str:
        """Why the file isn't there, for everybody to read, with this content; empty if it is.

        Without content there should be none.
        """
        if not content:
            return "it is there" if os.path.lexists(self.path) else ""
        return file_fault(self.path, content, mode=MODE)

    def _replace(self, content: bytes, found: str) -> bool:
        if not found:
            discard_unfinished(self.path)
            return False
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(self.path, content, mode=MODE)
        return True

    def _remove(self) -> bool:
        discard_unfinished(self.path)
        if not os.path.lexists(self.path):  # in a read-only folder, removing nothing fails too
            return False
        remove_any(self.path)
        return True

    def _sentence(self, content: bytes, error: OSError) -> str:
        folder, reason = self.path.parent, error.strerror or str(error)
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            reason += f" (as user {os.geteuid()}: let it write to {folder})"
        return f"{self.path} can't be {'written' if content else 'removed'}: {reason}"
