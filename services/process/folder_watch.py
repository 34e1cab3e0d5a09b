"""Folders watched for names that come and go: the kubelet's, and cards' where no uevent tells.

Those are below a root that isn't the host's (its `sys` and `dev` are ordinary folders), and for a
process that the kernel sends no uevents. Of the real sysfs inotify tells nothing, of the real
`/dev` it does.

inotify(7) watches folders that exist. So that a folder may come and go itself, each one on the way
to it from the root is watched for the next, and while there is no root, the folder it will be in.
Whenever a name of interest comes or goes, all of them are watched anew, which changes nothing for
those that are watched already. Python has no inotify; a few calls into the C library are all that
is needed.
"""

import asyncio
import ctypes
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import structlog

FOLDERS: Final[Mapping[str, re.Pattern[str]]] = {
    "sys/class/fpga": re.compile(r"intel-fpga-dev\..*"),
    "sys/class/fpga_region": re.compile(r"region.*"),
    "dev": re.compile(r"(?:intel-fpga|dfl)-.*"),
}
"""Where cards show below a root, and under what names."""

_MASK: Final = (
    0x00000040  # IN_MOVED_FROM
    | 0x00000080  # IN_MOVED_TO
    | 0x00000100  # IN_CREATE
    | 0x00000200  # IN_DELETE
    | 0x00000400  # IN_DELETE_SELF
    | 0x00000800  # IN_MOVE_SELF
    | 0x01000000  # IN_ONLYDIR
)
_IGNORED: Final = 0x00008000
"""IN_IGNORED: a watch has ended, with its folder or its file system."""
_EVENT: Final = struct.Struct("iIII")
"""`struct inotify_event`: watch, mask, cookie, length of the name behind it."""
_BUFFER: Final = 64 * 1024

log = structlog.get_logger(room="folder-watch")


async def follow_folders(
    root: Path,
    notify: Callable[[], None],
    *,
    folders: Mapping[str, re.Pattern[str]] = FOLDERS,
) -> None:
    """Tells of names that come and go until cancelled; returns when folders can't be watched.

    It also tells once when it starts to watch: what happened before is otherwise not seen until
    the timer looks.

    Args:
        root: Folder below which the others are; need not exist, but its parent must.
        notify: Called for each name that matters, and when events were lost.
        folders: Paths below the root, and which names in them matter.
    """
    try:
        watch = FolderWatch(root, notify, folders)
    except OSError as error:
        log.warning(
            "folders can't be watched: cards that come and go are seen by the timer",
            root=str(root),
            reason=error.strerror or str(error),
        )
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(watch.descriptor, watch.readable)
    try:
        notify()
        await asyncio.Event().wait()
    finally:
        loop.remove_reader(watch.descriptor)
        watch.close()


class FolderWatch:
    """An inotify descriptor and what is watched with it.

    Args:
        root: Folder below which the others are.
        notify: Called for each name that matters.
        folders: Paths below the root, and which names in them matter.

    Raises:
        OSError: There are no watches to be had.
    """

    def __init__(
        self, root: Path, notify: Callable[[], None], folders: Mapping[str, re.Pattern[str]]
    ) -> None:
        self._root = root
        self._notify = notify
        self._wanted = dict(_wanted(root, folders))
        self._watched: dict[int, re.Pattern[str]] = {}
        self._there: frozenset[Path] = frozenset()
        self._troubled = False
        self._library = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise _last_error()
        try:
            self._watch_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all watches."""
        os.close(self.descriptor)

    def readable(self) -> None:
        """Takes what the kernel tells."""
        try:
            told = os.read(self.descriptor, _BUFFER)
        except (BlockingIOError, InterruptedError):
            return
        matter = False
        for event in _events(told):
            matter |= self._matters(*event)
        if matter:
            self.renew()
            self._notify()

    def watches(self, folder: Path) -> bool:
        """Whether what comes and goes in a folder is told now."""
        return folder in self._there

    def _matters(self, watch: int, mask: int, name: str) -> bool:
        if mask & _IGNORED:
            return self._watched.pop(watch, None) is not None
        names = self._watched.get(watch)
        if watch < 0 or not name:  # events were lost, or the folder itself is gone
            return True
        return names is not None and names.fullmatch(name) is not None

    def renew(self) -> None:
        """Watches what has the folders' paths now; for who finds that it isn't what had them."""
        try:
            self._watch_all()
        except OSError as error:
            say = log.debug if self._troubled else log.warning
            say(
                "a folder can't be watched: what comes and goes in it is seen by the timer",
                reason=str(error),
            )
            self._troubled = True
        else:
            self._troubled = False

    def _watch_all(self) -> None:
        """Watches each folder that exists; those that don't will come in one that does.

        Raises:
            OSError: There are no more watches to be had.
        """
        watched, there, self._there = {}, set[Path](), frozenset[Path]()
        for folder, names in self._wanted.items():
            watch = self._watch(folder)
            if watch is not None:
                watched[watch] = names
                there.add(folder)
            elif folder == self._root:
                above = self._watch(folder.parent)
                if above is not None:
                    watched[above] = re.compile(re.escape(folder.name))
        for old in self._watched.keys() - watched.keys():  # it was moved, or made anew
            self._library.inotify_rm_watch(self.descriptor, old)
        self._watched, self._there = watched, frozenset(there)

    def _watch(self, folder: Path) -> int | None:
        watch: int = self._library.inotify_add_watch(self.descriptor, os.fsencode(folder), _MASK)
        if watch >= 0:
            return watch
        error = _last_error(str(folder))
        if isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
            return None
        raise error


def _wanted(
    root: Path, folders: Mapping[str, re.Pattern[str]]
) -> Iterator[tuple[Path, re.Pattern[str]]]:
    """The folders and all on the way to them, outermost first, each with its names of interest."""
    names: dict[Path, list[str]] = {}
    for folder, pattern in folders.items():
        path = root / folder
        names.setdefault(path, []).append(pattern.pattern)
        while path != root:
            names.setdefault(path.parent, []).append(re.escape(path.name))
            path = path.parent
    for path in sorted(names, key=lambda each: len(each.parts)):
        yield path, re.compile("|".join(dict.fromkeys(names[path])))


def _events(told: bytes) -> Iterator[tuple[int, int, str]]:
    offset = 0
    while offset + _EVENT.size <= len(told):
        watch, mask, _, length = _EVENT.unpack_from(told, offset)
        offset += _EVENT.size
        name = told[offset : offset + length].rstrip(b"\0")
        offset += length
        yield watch, mask, os.fsdecode(name)


def _last_error(what: str = "") -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), what) if what else OSError(code, os.strerror(code))
