"""Whether the kubelet is there, and whether it is still the same one.

The kubelet doesn't tell its plugins that it restarts. It leaves its socket behind when it stops,
deletes every other socket in the folder when it starts, and makes its own anew. So a look at the
folder tells all there is to tell: one listing gives the names and inodes of its sockets and ours.

The kernel tells when to look (inotify), and a timer looks now and then all the same. Where the
kernel can't be asked, has no folder to watch, or has kept a change to itself (something else was
mounted there), the timer looks a few times a second, until the kernel tells of a change again. What
has changed is always judged by looking: a socket that was made anew quickly is known by its
identity, and a folder that was removed and made again is watched anew.

Unless it was mounted: what is mounted in a container stays the folder that was removed, for as long
as the container lives. Only another container gets the new one, so then the plugin has to end.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from services.kubelet.sockets import KUBELET_SOCKET
from services.process.folder_watch import FolderWatch

LOOK_SECONDS: Final = 0.25
"""Between two looks where nobody tells of changes: a restarted kubelet is seen within this."""

CALM: Final = 8
"""How many times longer the timer waits where the kernel tells of changes."""

SETTLE_SECONDS: Final = 0.02
"""Before what was told is looked at: a burst is one look, and a socket that is made is listened on
by then."""

AT_ONCE: Final = 8
"""Registrations under way at once: the kubelet takes some while servers of others start, and the
memory that one needs goes to the next one."""

SETTLED_NS: Final = 1_000_000_000
"""A folder whose time is older than this says by it whether anything has come or gone since."""

log = structlog.get_logger(room="plugin")


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one socket from another at the same path.

    Inodes of deleted files are soon given out again, so the time it was made counts too.
    """

    inode: int
    made_ns: int


def identify(path: Path) -> Identity | None:
    """The identity of what has a path now; None where there is nothing to be seen."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return Identity(found.st_ino, found.st_mtime_ns)


def _links(folder: Path) -> int | None:
    """How many links a folder has, none if only a mount still leads to it; None if it is gone."""
    try:
        return folder.stat().st_nlink
    except OSError:
        return None


class _Guard:
    """A socket of ours that is looked after."""

    def __init__(self, identity: Identity | None, news: asyncio.Event) -> None:
        self.identity = identity
        self.news = news
        self.gone = asyncio.Event()


class KubeletWatch:
    """Looks at the kubelet's folder, and wakes who waits for a change in it.

    Args:
        folder: The kubelet's folder of device plugins.
        look_seconds: Time between two looks.
    """

    def __init__(self, folder: Path, *, look_seconds: float = LOOK_SECONDS) -> None:
        self.folder = folder
        self.socket = folder / KUBELET_SOCKET
        self.current: Identity | None = None
        self.registering = asyncio.Semaphore(AT_ONCE)
        """Held by who registers."""
        self._look_seconds = look_seconds
        self._changed = asyncio.Event()
        self._removed = asyncio.Event()
        self._had_links = bool(_links(folder))
        """Whether a folder without any is one that was removed: some file systems count none."""
        self._trouble = ""
        self._guards: dict[str, _Guard] = {}
        self._seen: tuple[int, ...] | None = None
        """What the folder was when nothing had just changed in it; None if that can't be told."""

    async def run(self) -> None:
        """Looks until cancelled."""
        self._look()
        if self.current is None:
            log.warning("kubelet is away: waiting for its socket", **self._where())
        timing = _Timing(self.folder, self._look, self._look_seconds)
        try:
            await timing.over
        finally:
            timing.close()

    async def present(self) -> Identity:
        """Waits until there is a kubelet's socket; it is as it is now, not as at the last look.

        Who registers with one that restarted since would take that for a loss, and do it again.
        """
        if identify(self.socket) != self.current:
            self._look()
        while self.current is None:
            await self._changed.wait()
        return self.current

    async def replaced(self, seen: Identity) -> None:
        """Waits until the kubelet's socket isn't the one seen."""
        while self.current == seen:
            await self._changed.wait()

    async def removed(self) -> None:
        """Waits until the folder is a mounted one that was removed where it comes from."""
        await self._removed.wait()

    @contextmanager
    def guard(self, path: Path, news: asyncio.Event) -> Iterator[asyncio.Event]:
        """An event that is set when our socket at a path in the folder is gone.

        Args:
            path: A socket that is there.
            news: Set then too, and when the kubelet's socket is another one.
        """
        guard = _Guard(identify(path), news)
        if guard.identity is None:
            guard.gone.set()
        self._guards[path.name] = guard
        self._seen = None
        try:
            yield guard.gone
        finally:
            self._guards.pop(path.name, None)

    def _look(self) -> bool:
        """Looks once; whether something has changed for anybody."""
        if not self._is_new():
            return False
        inodes: dict[str, int] = {}
        try:
            with os.scandir(self.folder) as entries:
                inodes = {entry.name: entry.inode() for entry in entries}
            self._trouble = ""
        except OSError as error:
            self._trouble = error.strerror or str(error)
        lost = [
            guard
            for name, guard in self._guards.items()
            if not guard.gone.is_set()
            and (guard.identity is None or inodes.get(name) != guard.identity.inode)
        ]
        for guard in lost:
            guard.gone.set()
            guard.news.set()
        now = identify(self.socket) if KUBELET_SOCKET in inodes else None
        if now == self.current:
            return bool(lost)
        before, self.current = self.current, now
        self._say(before, now)
        self._changed.set()
        self._changed = asyncio.Event()
        for guard in self._guards.values():
            guard.news.set()
        return True

    def _is_new(self) -> bool:
        """Whether something has come or gone since the last look, or may have.

        Any name that comes or goes changes the folder's time, as fine as its file system's clock
        ticks: what changed just now may change again within the same tick.
        """
        seen, self._seen = self._seen, None
        try:
            found = os.stat(self.folder)  # noqa: PTH116 - some times a second for years
        except OSError:
            return True
        if found.st_nlink:
            self._had_links = True
        elif self._had_links and _links(self.folder) == 0:  # one that was just going is gone by now
            self._removed.set()
        now = found.st_dev, found.st_ino, found.st_ctime_ns, found.st_nlink
        if abs(time.time_ns() - found.st_ctime_ns) > SETTLED_NS:
            self._seen = now
        return now != seen

    def _say(self, before: Identity | None, now: Identity | None) -> None:
        if now is None:
            log.warning("kubelet is away: its socket is gone", **self._where())
        elif before is None:
            log.info("kubelet is there", **self._where())
        else:
            log.info("kubelet has restarted", **self._where())

    def _where(self) -> dict[str, str]:
        where = {"socket": str(self.socket)}
        return where | {"reason": self._trouble} if self._trouble else where


class _Timing:
    """When to look: soon after the kernel has told of a change, and now and then anyway.

    It works from timers itself: half of what a task that sleeps would take.

    Args:
        folder: What is looked at.
        look: Looks, and gives whether something has changed.
        seconds: Time between two looks where nobody tells of changes.
    """

    def __init__(self, folder: Path, look: Callable[[], bool], seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Never done, unless a look fails by a mistake of ours."""
        self._folder = folder
        self._look = look
        self._seconds = seconds
        self._told = False
        self._deaf = False
        self._watch = self._begin()
        if self._watch is not None:
            self._loop.add_reader(self._watch.descriptor, self._watch.readable)
        self._timer = self._loop.call_later(0, self._due)

    def close(self) -> None:
        """Looks no more."""
        self._timer.cancel()
        if self._watch is not None:
            self._loop.remove_reader(self._watch.descriptor)
            self._watch.close()

    def _begin(self) -> FolderWatch | None:
        names = {self._folder.name: re.compile(".*", re.DOTALL)}
        try:
            return FolderWatch(self._folder.parent, self._notice, names)
        except OSError as error:
            log.info(
                "the kubelet's folder can't be watched, it is looked at more often",
                folder=str(self._folder),
                reason=error.strerror or str(error),
            )
            return None

    def _notice(self) -> None:
        """Something has come or gone, perhaps the folder itself."""
        if not self._told:
            self._told = True
            self._timer.cancel()
            self._timer = self._loop.call_later(SETTLE_SECONDS, self._due)

    def _due(self) -> None:
        told, self._told = self._told, False
        try:
            changed = self._look()
            if told:
                self._deaf = False
            elif changed:
                self._missed()
        except Exception as error:  # noqa: BLE001 - whoever waits for the end is to know of any
            self.over.set_exception(error)
            return
        heard = not self._deaf and self._watch is not None and self._watch.watches(self._folder)
        seconds = self._seconds * (CALM if heard else 1)
        self._timer = self._loop.call_later(seconds, self._due)

    def _missed(self) -> None:
        """The timer has seen what the kernel didn't tell, or hasn't yet."""
        self._deaf = True
        if self._watch is not None:
            self._watch.renew()
