"""Reading sysfs under an injected root: bounded, never blocking, never outside of the root.

The root is `/` on a host, `/host` in a container that has the host's file system there, or the
folder of an unpacked snapshot. Links are followed as if the root were the whole file system: an
absolute target starts at the root (also one that spells the root out) and `..` stops there, so
that a link can't lead a reader out.

Nothing here raises for what a card's files may be: a missing, unreadable, endless or binary file,
a folder or FIFO in a file's place, a link to nowhere or to itself are all answers.
"""

import errno
import functools
import os
import posixpath
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from services.devices.health import Failure, NodeState, Reading

MAX_ATTRIBUTE = 4096
"""Bytes that are read of one attribute: a driver gives one page at most."""

MAX_LINKS = 40
"""Links that are followed on one path, as in the kernel."""

Content = bytes | Reading
"""What reading one attribute gave: its bytes as they are, or why there are none."""

_PADDING = b"\0 \t\r\n\v\f"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO})
_MISSING = Reading(failure=Failure.MISSING, detail="no such file")

_MAY_ASK = os.access in os.supports_follow_symlinks and os.access(
    "/", os.F_OK, follow_symlinks=False
)
"""Whether the system tells what exists without telling more, at a quarter of the price; it doesn't
where what filters a container's system calls has never heard of that one. Only below a folder that
is open: a test bed like umockdev leads all other calls below `/sys` elsewhere, but not this one."""

Stamp = tuple[int, int, int, int]
"""Tells a folder as it is from what it was: device, inode, links, time of change in ns.

In sysfs the links are two more than the folders in it, and the time says nothing; elsewhere the
time says it all.
"""


class Sysfs:
    """The files of one scan.

    It remembers which folders are folders and not links, so that following a path costs one
    look a folder and scan. Make a new one for each scan.

    Paths start with `/` and are below the root. What `within` and `follow` give takes paths without
    it too, below their folder: `contents`, `listing`, `link`, `stamp` and `exists` do.

    Args:
        root: Folder below which `sys/` and `dev/` are.
    """

    def __init__(self, root: Path) -> None:
        # Not realpath alone: what it makes of /proc/1/root is the wrong root.
        absolute = os.path.abspath(root)  # noqa: PTH100 - no link may be resolved
        self._root = "" if absolute == "/" else absolute
        self._real = "" if self.is_host else _real_path(absolute)
        self._folders: set[str] = {""}
        self._within = ""
        self._descriptor = -1

    def within(self, folder: str) -> Self:
        """The same files, where those below a folder are found without walking to it each time.

        Below sysfs every folder on the way costs about as much as a read. Close what this gives.

        Args:
            folder: Path of a folder below the root, all links followed.

        Raises:
            OSError: It can't be opened, or is no folder.
        """
        return self._view(folder, os.open(self._root + folder, _FOLDER))

    def follow(self, link: str, target: str) -> Self:
        """As `within`, for the folder that a link leads to.

        Args:
            link: Path of the link below the root; the links in its folders have been followed.
            target: What it says.

        Raises:
            OSError: It leads nowhere, or to no folder.
        """
        if target[:1] != "/":
            view = self._follow_plain(f"{link.rpartition('/')[0]}/{target}")
            if view is not None:
                return view
        resolved = self.resolve(link)
        if resolved is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), link)
        return self.within(resolved)

    def _follow_plain(self, path: str) -> Self | None:
        """A folder to which no further link leads; one look for all the folders on the way."""
        plain = posixpath.normpath(path)
        try:
            descriptor = os.open(self._root + plain, _FOLDER)
        except OSError:
            return None
        # Where the system says the same, no link was followed, nor the root left.
        if _path_of(descriptor) == self._real + plain:
            return self._view(plain, descriptor)
        os.close(descriptor)
        return None

    def _view(self, folder: str, descriptor: int) -> Self:
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._within, view._descriptor = f"{folder}/", descriptor
        return view

    @property
    def folder(self) -> str:
        """The folder that it is within, below the root."""
        return self._within[:-1]

    def close(self) -> None:
        """Ends what `within` or `follow` began; each once."""
        os.close(self._descriptor)

    @functools.cached_property
    def is_host(self) -> bool:
        """Whether the root is this system's own, so that device nodes must be devices."""
        try:
            return os.path.samefile(self._root or "/", "/")  # noqa: PTH121 - plain paths
        except OSError:
            return False

    def resolve(self, path: str) -> str | None:
        """Where a path ends when every link on it has been followed.

        Args:
            path: Path below the root, with or without a leading `/`.

        Returns:
            The path below the root, starting with `/`, or None if it leads nowhere.
        """
        here, links = "", 0
        todo = path.split("/")[::-1]
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                here = here.rpartition("/")[0]
                continue
            there = f"{here}/{name}"
            if there in self._folders:
                here = there
                continue
            try:
                target = os.readlink(self._root + there)  # noqa: PTH115 - plain paths, for speed
            except OSError as error:
                if error.errno != errno.EINVAL:
                    return None
                if todo:
                    self._folders.add(there)
                here = there
                continue
            links += 1
            if links > MAX_LINKS:
                return None
            if target.startswith("/"):
                here = ""
                target = self._below_root(target)
            todo.extend(target.split("/")[::-1])
        return here or "/"

    def _below_root(self, target: str) -> str:
        """An absolute link's target without the root, if it spells that out."""
        for root in (self._root, self._real):
            if root and target.startswith(f"{root}/"):
                return target[len(root) :]
        return target

    def read(self, path: str) -> Reading:
        """The content of an attribute.

        Args:
            path: Path below the root, starting with `/`; links in its folders are followed by
                the system, so they must have been resolved before.
        """
        try:
            return self._read(path)
        except OSError as error:
            return self._after(path, error)

    def contents(self, paths: Iterable[str]) -> tuple[Content, ...]:
        """The contents of attributes, as fast as it goes.

        Args:
            paths: As of `read`, or below the folder of `within`.
        """
        found: list[Content] = []
        open_, read, close, within = os.open, os.read, os.close, self._descriptor
        for path in paths:
            try:
                if path[0] == "/":
                    descriptor = open_(self._root + path, _FLAGS)
                else:
                    descriptor = open_(path, _FLAGS, dir_fd=within)
                try:
                    content = read(descriptor, MAX_ATTRIBUTE)
                finally:
                    close(descriptor)
            except OSError as error:
                full = path if path[0] == "/" else f"{self._within}{path}"
                found.append(self._after(full, error))
            else:
                found.append(content or self.read(path if path[0] == "/" else self._within + path))
        return tuple(found)

    def _after(self, path: str, error: OSError) -> Reading:
        """What an attribute that could not be read gives."""
        return self._read_linked(path) if error.errno == errno.ELOOP else _failed(error)

    def _read(self, path: str) -> Reading:
        if self._within and path.startswith(self._within):
            descriptor = os.open(path[len(self._within) :], _FLAGS, dir_fd=self._descriptor)
        else:
            descriptor = os.open(self._root + path, _FLAGS)
        try:
            reading = reading_of(os.read(descriptor, MAX_ATTRIBUTE))
            # What is no file and can be read all the same (a FIFO) gives nothing: whoever waits
            # for it hangs, as with a card that doesn't answer.
            if not reading.text and not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Reading(failure=Failure.DEAD, detail="not a regular file")
        finally:
            os.close(descriptor)
        return reading

    def _read_linked(self, path: str) -> Reading:
        resolved = self.resolve(path)
        if resolved is None:
            return Reading(failure=Failure.UNREADABLE, detail="a link that leads nowhere")
        try:
            return self._read(resolved)
        except OSError as error:
            return _failed(error)

    def text(self, path: str) -> str:
        """The content of an attribute, empty if it can't be read."""
        return self.read(path).text

    def link(self, path: str) -> str:
        """A link's target as written, wherever that leads; empty if it is no link."""
        full = path if path[0] != "/" else self._root + path
        try:
            return os.readlink(full, dir_fd=self._descriptor)
        except OSError:
            return ""

    def inode(self, path: str) -> int | None:
        """The inode number of a folder or file, None if it isn't there."""
        try:
            return os.lstat(self._root + path).st_ino
        except OSError:
            return None

    def stamp(self, path: str) -> Stamp | None:
        """What a folder is known by as long as nothing comes or goes in it.

        Returns:
            None if it isn't there.
        """
        try:
            if path[0] == "/":
                found = os.stat(self._root + path)  # noqa: PTH116 - plain paths, for speed
            else:
                found = os.stat(path, dir_fd=self._descriptor)
        except OSError:
            return None
        return _stamp(found)

    def exists(self, path: str) -> bool:
        """Whether something stands there, if only a link to nowhere."""
        if path[0] == "/":
            return os.path.lexists(self._root + path)
        if _MAY_ASK:
            return os.access(path, os.F_OK, dir_fd=self._descriptor, follow_symlinks=False)
        try:
            os.lstat(path, dir_fd=self._descriptor)
        except OSError:
            return False
        return True

    def names(self, path: str) -> list[str]:
        """The names in a folder, unsorted.

        Raises:
            OSError: It can't be listed.
        """
        return os.listdir(self._root + path)  # noqa: PTH208 - names are all that is needed, fast

    def stamped(self, path: str) -> tuple[Stamp, list[str]]:
        """What a folder is known by, and the names in it, unsorted.

        Raises:
            OSError: It can't be listed.
        """
        descriptor = self._open(path)
        try:
            return _stamp(os.fstat(descriptor)), os.listdir(descriptor)  # noqa: PTH208 - no path
        finally:
            os.close(descriptor)

    def listing(self, path: str) -> tuple[Stamp, dict[str, bool]]:
        """As `stamped`, and of each name whether it is a link."""
        descriptor = self._open(path)
        try:
            with os.scandir(descriptor) as listing:
                names = {each.name: each.is_symlink() for each in listing}
            return _stamp(os.fstat(descriptor)), names
        finally:
            os.close(descriptor)

    def _open(self, path: str) -> int:
        """A folder to be listed."""
        full = path if path[0] != "/" else self._root + path
        return os.open(full, _LISTED, dir_fd=self._descriptor)

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, unsorted, without links to folders.

        Returns:
            None at all if it can't be listed.
        """
        try:
            with os.scandir(self._root + path) as listing:
                return [each.name for each in listing if each.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def node(self, name: str) -> NodeState:
        """What stands at the place of a device node.

        Args:
            name: File name below `/dev`.
        """
        path = f"/dev/{name}"
        try:
            kind = stat.S_IFMT(os.lstat(self._root + path).st_mode)
            if kind == stat.S_IFLNK:
                resolved = self.resolve(path)
                if resolved is None:
                    return NodeState.MISSING
                kind = stat.S_IFMT(os.lstat(self._root + resolved).st_mode)
        except OSError as error:
            return NodeState.MISSING if error.errno in _GONE else NodeState.UNREADABLE
        if kind == stat.S_IFCHR or (kind == stat.S_IFREG and not self.is_host):
            return NodeState.PRESENT
        return NodeState.NOT_A_DEVICE


def _real_path(root: str) -> str:
    """A root without links, or as it is if it may not be looked at: then nothing in it may."""
    try:
        return os.path.realpath(root)
    except OSError:
        return root


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_nlink, found.st_mtime_ns


def _path_of(descriptor: int) -> str:
    """Where an open folder is, as the system knows it; empty if it doesn't tell."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - plain paths, for speed
    except OSError:
        return ""


def reading_of(content: Content) -> Reading:
    """What an attribute says, its padding taken off."""
    return content if isinstance(content, Reading) else _text(content)


@functools.lru_cache(maxsize=128)
def _text(content: bytes) -> Reading:
    """Most files of most cards hold the same few zeros."""
    return Reading(content.strip(_PADDING).decode("ascii", "replace"))


def _failed(error: OSError) -> Reading:
    if error.errno in _GONE:
        return _MISSING
    kind = Failure.UNREADABLE if error.errno in _FORBIDDEN else Failure.DEAD
    return Reading(failure=kind, detail=error.strerror or str(error))
