"""Watches the kubelet's folder: is the kubelet there, and is it still the same one?

The kubelet doesn't tell its plugins that it restarts. It leaves its socket behind when it stops,
deletes all other sockets in the folder when it starts, and creates its own again. So listing the
folder is enough: it shows the names and inodes of the kubelet's socket and ours.

The folder is checked four times a second. A socket that was created again between two checks is
recognized by its identity.

A folder that is mounted into a container and then deleted on the host stays the deleted one until
the container ends. Only another container gets the new folder, so then the plugin has to end.
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

CHECK_SECONDS: Final = 0.25
"""Between two checks: a restarted kubelet is noticed within this time."""

AT_ONCE: Final = 8
"""Registrations at once: the kubelet answers some while the servers of others start, and the memory
of one is used again by the next."""

SETTLED_NS: Final = 1_000_000_000
"""A folder whose time is older than this has not changed if its time is the same."""

log = structlog.get_logger(room="plugin")


@dataclass(frozen=True, slots=True)
class Identity:
    """What distinguishes two sockets at the same path.

    Inodes of deleted files are soon used again, so the time of creation counts too.
    """

    inode: int
    made_ns: int


def identify(path: Path) -> Identity | None:
    """The identity of the file at a path; None if there is none, or it can't be read."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return Identity(found.st_ino, found.st_mtime_ns)


def _links(folder: Path) -> int | None:
    """How many links a folder has: 0 if it is only mounted; None if it is gone."""
    try:
        return folder.stat().st_nlink
    except OSError:
        return None


class _Guard:
    """One of our sockets, which is watched."""

    def __init__(self, identity: Identity | None, news: asyncio.Event) -> None:
        self.identity = identity
        self.news = news
        self.gone = asyncio.Event()


class KubeletWatch:
    """Watches the kubelet's folder, and wakes those who wait for a change.

    Args:
        folder: The kubelet's folder of device plugins.
        check_seconds: Time between two checks.
    """

    def __init__(self, folder: Path, *, check_seconds: float = CHECK_SECONDS) -> None:
        self.folder = folder
        self.socket = folder / KUBELET_SOCKET
        self.current: Identity | None = None
        self.registering = asyncio.Semaphore(AT_ONCE)
        """Held during a registration."""
        self._check_seconds = check_seconds
        self._changed = asyncio.Event()
        self._removed = asyncio.Event()
        self._had_links = bool(_links(folder))
        """Whether the folder ever had links: some file systems always count none."""
        self._error = ""
        self._guards: dict[str, _Guard] = {}
        self._seen: tuple[int, ...] | None = None
        """The folder's identity when nothing had just changed in it; None if that is unknown."""

    async def watch(self) -> None:
        """Checks until cancelled."""
        self._check()
        if self.current is None:
            log.warning("kubelet is away: waiting for its socket", **self._where())
        while True:
            await asyncio.sleep(self._check_seconds)
            self._check()

    async def present(self) -> Identity:
        """Waits for the kubelet's socket, and returns its identity now, not at the last check.

        A registration with an old identity would count as lost, and be repeated.
        """
        if identify(self.socket) != self.current:
            self._check()
        while self.current is None:
            await self._changed.wait()
        return self.current

    async def replaced(self, seen: Identity) -> None:
        """Waits until the kubelet's socket is another one."""
        while self.current == seen:
            await self._changed.wait()

    async def removed(self) -> None:
        """Waits until the folder was deleted on the host while it is mounted here."""
        await self._removed.wait()

    @contextmanager
    def guard(self, path: Path, news: asyncio.Event) -> Iterator[asyncio.Event]:
        """An event that is set when our socket at a path in the folder is gone.

        Args:
            path: The path of an existing socket.
            news: Also set then, and when the kubelet has another socket.
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

    def _check(self) -> None:
        """Checks once."""
        if not self._is_new():
            return
        inodes: dict[str, int] = {}
        try:
            with os.scandir(self.folder) as entries:
                inodes = {entry.name: entry.inode() for entry in entries}
            self._error = ""
        except OSError as error:
            self._error = error.strerror or str(error)
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
        self._log_change(before, now)
        self._changed.set()
        self._changed = asyncio.Event()
        for guard in self._guards.values():
            guard.news.set()

    def _is_new(self) -> bool:
        """Whether a name may have come or gone since the last check.

        That changes the folder's time, in ticks of the file system's clock: a folder that has just
        changed may change again within the same tick.
        """
        seen, self._seen = self._seen, None
        try:
            found = os.stat(self.folder)  # noqa: PTH116 - some times a second for years
        except OSError:
            return True
        if found.st_nlink:
            self._had_links = True
        elif (
            self._had_links and _links(self.folder) == 0
        ):  # a folder that was being deleted is gone by now
            self._removed.set()
        now = found.st_dev, found.st_ino, found.st_ctime_ns, found.st_nlink
        if abs(time.time_ns() - found.st_ctime_ns) > SETTLED_NS:
            self._seen = now
        return now != seen

    def _log_change(self, before: Identity | None, now: Identity | None) -> None:
        if now is None:
            log.warning("kubelet is away: its socket is gone", **self._where())
        elif before is None:
            log.info("kubelet is there", **self._where())
        else:
            log.info("kubelet has restarted", **self._where())

    def _where(self) -> dict[str, str]:
        where = {"socket": str(self.socket)}
        return where | {"reason": self._error} if self._error else where
