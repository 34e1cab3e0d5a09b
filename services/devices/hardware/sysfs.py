"""Files below an injected root: bounded reads that never leave the root by a card's entry.

The root is `/` on a host, `/host` in a container that has the host's file system there, or the
folder of an unpacked snapshot. Nothing here raises for what a card's files may be: a missing,
unreadable, endless or binary file, a folder, link or FIFO in a file's place are all answers.
"""

import errno
import functools
import os
import stat
from pathlib import Path

from services.devices.health import Failure, Reading
from services.process.problem import Problem

MAX_ATTRIBUTE = 4096
"""Bytes that are read of an attribute: a driver gives one page at most."""

_PADDING = b"\0 \t\r\n\v\f"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO})
_MAX_LINKS = 40
"""Of a path, as for Linux."""
_MISSING = Reading(failure=Failure.MISSING, detail="no such file")


class Sysfs:
    """The files of one scan. Paths are below the root and start with `/`.

    Links are followed once, so make a new one for each scan.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root).rstrip("/")
        self._real = os.path.realpath(root).rstrip("/")
        self._resolved: dict[str, str | None] = {}
        self._targets: dict[str, str | None] = {}
        self._closed: set[str] = set()

    @functools.cached_property
    def is_host(self) -> bool:
        """Whether the root is this system's own, so that device nodes must be devices."""
        try:
            return os.path.samefile(self._root or "/", "/")  # noqa: PTH121 - plain paths
        except OSError:
            return False

    def resolve(self, path: str) -> str | None:
        """The path without links; None if it leads nowhere.

        As for a process whose root this is: absolute links begin at the root, and above the root is
        the root again. So no link leads out of it.
        """
        if path not in self._resolved:
            self._resolved[path] = self._without_links(path)
        return self._resolved[path]

    def _without_links(self, path: str) -> str | None:
        # Each entry is looked at once for all paths through it; `realpath` would do it each time,
        # and begin absolute links at the root of this system.
        folder, steps, links = "", path.split("/")[::-1], 0
        while steps:
            name = steps.pop()
            if name == "..":
                folder = folder.rpartition("/")[0]
                continue
            if name in ("", "."):
                continue
            place = f"{folder}/{name}"
            target = self._target(place)
            if target is None:
                if place in self._closed:
                    self._closed.add(path)
                return None
            if not target:
                folder = place
                continue
            links += 1
            if links > _MAX_LINKS:
                return None
            if target.startswith("/"):
                folder = ""
            steps += target.split("/")[::-1]
        return folder

    def _target(self, place: str) -> str | None:
        """The target of a link, empty if it is none; None if nothing is there."""
        if place not in self._targets:
            try:
                target: str | None = os.readlink(self._real + place)  # noqa: PTH115 - for speed
            except OSError as error:
                target = "" if error.errno == errno.EINVAL else None
                if error.errno not in (errno.EINVAL, *_GONE):
                    self._closed.add(place)
            self._targets[place] = target
        return self._targets[place]

    def read(self, path: str) -> Reading:
        """The content of an attribute, which is no link; those in its folders were resolved."""
        try:
            return self._read(path)
        except OSError as error:
            return _failed(error)

    def _read(self, path: str) -> Reading:
        descriptor = os.open(self._root + path, _FLAGS)
        try:
            content = os.read(descriptor, MAX_ATTRIBUTE)
            # A FIFO can be read and gives nothing: whoever waits for it hangs, as with a card that
            # does not answer.
            if not content and not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Reading(failure=Failure.DEAD, detail="not a regular file")
        finally:
            os.close(descriptor)
        return Reading(content.strip(_PADDING).decode("ascii", "replace"))

    def text(self, path: str) -> str:
        """The content of an attribute, empty if it can't be read."""
        return self.read(path).text

    def link(self, path: str) -> str:
        """A link's target as written, wherever that leads; empty if it is no link."""
        try:
            return os.readlink(self._root + path)  # noqa: PTH115 - plain paths, for speed
        except OSError:
            return ""

    def inode(self, path: str) -> int | None:
        """The inode number of a folder, a file or a link to nowhere, None if it isn't there."""
        try:
            return os.lstat(self._root + path).st_ino
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """The names in a folder, unsorted; an `OSError` if it can't be listed."""
        return os.listdir(self._root + path)  # noqa: PTH208 - names are all that is needed, fast

    def names_if_listable(self, path: str) -> list[str]:
        """As `names`, but empty if the folder can't be listed."""
        try:
            return self.names(path)
        except OSError:
            return []

    def folders(self, path: str) -> list[str]:
        """The folders in a folder, unsorted, without links; empty if it can't be listed."""
        try:
            with os.scandir(self._root + path) as listing:
                return [each.name for each in listing if each.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def node_problem(self, name: str) -> Problem | None:
        """Why a device node, a file below `/dev`, can't be handed out."""
        path = f"/dev/{name}"
        missing = Problem("node-missing", f"there is no {path}")
        unreadable = Problem("node-unreadable", f"{path} can't be read")
        resolved = self.resolve(path)
        if resolved is None:
            return unreadable if path in self._closed else missing
        try:
            kind = stat.S_IFMT(os.lstat(self._root + resolved).st_mode)
        except OSError as error:
            return missing if error.errno in _GONE else unreadable
        if kind == stat.S_IFCHR or (kind == stat.S_IFREG and not self.is_host):
            return None
        return Problem("node-not-a-device", f"{path} is not a character device")

    def node_target(self, name: str) -> str:
        """The path below `/dev` of the node that links lead to, whole if it is elsewhere.

        Empty if there is no link on the way, or no node.
        """
        resolved = self.resolve(f"/dev/{name}")
        target = (resolved or "").removeprefix(f"{self.resolve('/dev')}/")
        return "" if target == name else target

    def node_number(self, name: str) -> tuple[int, int] | None:
        """Major and minor of the character device at the place of a node, None if it is none."""
        resolved = self.resolve(f"/dev/{name}")
        try:
            state = os.lstat(self._root + resolved) if resolved else None
        except OSError:
            return None
        if state is None or not stat.S_ISCHR(state.st_mode):
            return None
        return os.major(state.st_rdev), os.minor(state.st_rdev)


def _failed(error: OSError) -> Reading:
    if error.errno in _GONE:
        return _MISSING
    kind = Failure.BUSY if error.errno == errno.EBUSY else Failure.DEAD
    if error.errno in _FORBIDDEN:
        kind = Failure.UNREADABLE
    return Reading(failure=kind, detail=error.strerror or str(error))
