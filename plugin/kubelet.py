"""Whether the kubelet is there, and whether it is still the same one.

The kubelet doesn't tell its plugins that it restarts. It leaves its socket behind when it stops,
deletes every other socket in the folder when it starts, and makes its own anew. So a look at the
folder tells all there is to tell: one listing gives the names and inodes of its sockets and ours.

The folder is looked at four times a second. A socket that was made anew in between is known by its
identity.

A folder that is mounted into a container and then removed on the host stays the removed one for as
long as the container lives. Only another container gets the new one, so then the plugin has to end.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from services.kubelet.sockets import KUBELET_SOCKET

LOOK_SECONDS: Final = 0.25
"""Between two looks: a restarted kubelet is seen within this."""

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
        while True:
            await asyncio.sleep(self._look_seconds)
            self._look()

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

    def _look(self) -> None:
        """Looks once."""
        if not self._is_new():
            return
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
            return
        before, self.current = self.current, now
        self._say(before, now)
        self._changed.set()
        self._changed = asyncio.Event()
        for guard in self._guards.values():
            guard.news.set()

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
