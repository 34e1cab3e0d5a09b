"""CDI files in the folder that container runtimes read: whole, current, and only ours touched.

A file is written beside its place and renamed into it, so that a runtime sees the old one or the
new one. What can't be written (a full disk, a folder that isn't ours) leaves the old file as it
was, and is told each time it is tried; trying again is what `CdiFolder.put` is for, since it does
nothing where the right bytes stand already.

Ours are the files whose names start as `services.devices.cdi.FILE_PREFIX` says. Those that are not
wanted any more, among them the halves that a killed process left, are removed.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.devices.cdi import FILE_PREFIX
from services.process.files import replace_file

MODE: Final = 0o644
"""The runtime that reads it may run as anyone."""

_OURS: Final = re.compile(rf"{re.escape(FILE_PREFIX)}[a-z0-9-]+\.json")
_HALF: Final = re.compile(rf"\.{re.escape(FILE_PREFIX)}[a-z0-9-]+\.json\.new")
"""Hidden and without a suffix that runtimes read."""


@dataclass(frozen=True, slots=True)
class Put:
    """What became of a folder's files.

    Args:
        written: Names of files that are new or have a new content.
        removed: Names of files of ours that were there and not wanted.
        problems: A sentence for each thing that couldn't be done; empty if all is as it should be.
        lost: Names of files that couldn't be written, where what was put there last isn't there
            either.
    """

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class CdiFolder:
    """Our files in a folder of CDI files. Its calls block: they are for a thread.

    Args:
        folder: The folder, made when there is something to put into it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._put: dict[str, bytes] = {}
        """What was put last, by name."""

    def put(self, files: Mapping[str, bytes]) -> Put:
        """Makes the folder hold these files of ours and no others.

        What the system refuses is told in the answer and keeps the rest from nothing.

        Args:
            files: Content by name; a file without content is one that should not be there.

        Raises:
            ValueError: A name isn't one of ours.
        """
        strangers = [name for name in files if not _OURS.fullmatch(name)]
        if strangers:
            raise ValueError(f"not ours to write: {strangers}")
        wanted = {name: content for name, content in files.items() if content}
        written, removed, problems, lost = [], [], [], []
        for name, content in wanted.items():
            try:
                if self._content(name, len(content)) != content:
                    self._write(name, content)
                    written.append(name)
                self._put[name] = content
            except OSError as error:
                problems.append(_told("written", self._folder / name, error))
                last = self._put.get(name, b"")
                if not last or self._content(name, len(last)) != last:
                    lost.append(name)
        for name in self._stale(wanted, problems):
            try:
                (self._folder / name).unlink(missing_ok=True)
                removed.append(name)
            except OSError as error:
                problems.append(_told("removed", self._folder / name, error))
        return Put(tuple(written), tuple(removed), tuple(problems), tuple(lost))

    def _content(self, name: str, length: int) -> bytes:
        """What a file holds, one byte more than it should at most; nothing if it is no file."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._folder / name, flags)
        except OSError:
            return b""
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != MODE:
                return b""
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(length + 1)
        except OSError:
            return b""
        finally:
            os.close(descriptor)

    def _write(self, name: str, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / name, content, mode=MODE)

    def _stale(self, wanted: Mapping[str, bytes], problems: list[str]) -> Iterator[str]:
        try:
            names = sorted(os.listdir(self._folder))  # noqa: PTH208 - names are all that is needed
        except FileNotFoundError:
            return
        except OSError as error:
            problems.append(_told("listed", self._folder, error))
            return
        for name in names:
            if _HALF.fullmatch(name) or (_OURS.fullmatch(name) and name not in wanted):
                yield name


def _told(what: str, path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        reason += (
            f" (as user {os.geteuid()}: let it write to {path.parent}, or leave out --cdi-dir)"
        )
    return f"{path} can't be {what}: {reason}"
