"""Only one accelbind plugin serves on a node: the first one; any other waits until it has ended.

The kubelet keeps the plugin that registered last for a resource, and doesn't tell the other one. So
if there are two plugins on a node (rolling updates that overlap, or two DaemonSets by accident),
the second one waits.

A lock (flock) on the kubelet's folder decides which one is first: the kernel gives it to one
process, even if two start in the same instant, and takes it back when that process ends, however it
ends. Nothing is written, so nothing is left behind, and the kubelet, which deletes the files of the
folder when it starts, can't remove the lock. A folder that was deleted and created again is locked
again. Without a folder every plugin is first.

Plugins from before the lock are found by their sockets, and waited for as well. The same applies if
the folder can't be locked.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import structlog

from plugin.sockets import SweptSockets, remove_stale_sockets
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, KubeletError

CHECK_SECONDS: Final = 0.2
"""Between two checks."""

FIRST_FACTOR: Final = 10
"""How many times longer the first plugin waits between checks: only a new folder can change that,
and `SingleInstance.claim` checks anyway before a socket is created in it."""

GONE_CHECKS: Final = 15
"""Checks in a row without another's sockets: a restarted kubelet removes them for a moment."""

SEARCH_SECONDS: Final = 10.0
"""For searching the folder once."""

_ANOTHER: Final = "another accelbind plugin serves on this node"

log = structlog.get_logger(room="plugin")


class SingleInstance:
    """Finds out whether this plugin is the one that serves on its node.

    Args:
        folder: The kubelet's folder of device plugins.
        calls: Makes the calls that may hang.
        on_wait: Called with the reason each time that this plugin starts to wait.
        check_seconds: Time between two checks.
    """

    def __init__(
        self,
        folder: Path,
        calls: BlockingCalls,
        *,
        on_wait: Callable[[str], None] = lambda _: None,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self.waits_for = ""
        """Why this plugin waits; empty if it doesn't."""
        self._folder = folder
        self._calls = calls
        self._on_wait = on_wait
        self._check_seconds = check_seconds
        self._lock = _FolderLock(folder)
        self._first = False
        self._changed = asyncio.Event()
        self._absent = GONE_CHECKS

    async def check_forever(self) -> NoReturn:
        """Checks until cancelled."""
        while True:
            await self._check()
            await asyncio.sleep(self._check_seconds * (FIRST_FACTOR if self._first else 1))

    async def first(self) -> None:
        """Waits until this plugin is the one that serves."""
        while not self._first:
            await self._changed.wait()

    async def second(self) -> None:
        """Waits until another plugin serves: the folder is new, and the other was faster."""
        while self._first:
            await self._changed.wait()

    def is_second(self) -> bool:
        """Whether another plugin has locked the folder; if none has, this one locks it."""
        return self._lock.acquire() is False

    def wait_for_port(self, error: str) -> None:
        """Waits for the port of another plugin that serves on this node.

        Args:
            error: Why the port can't be used.
        """
        if not self.waits_for:
            log.warning(
                "another accelbind plugin serves on this node: waiting until it ends",
                holder=self._lock.holder(),
                reason=error,
            )
        self.waits_for = _ANOTHER

    def claim(self) -> None:
        """Locks the folder before a socket is created in it.

        Raises:
            KubeletError: Another plugin has the folder.
        """
        if self._lock.acquire() is False:
            raise KubeletError(f"{_ANOTHER}: it was faster in {self._folder}, which is new")

    def close(self) -> None:
        """Releases the lock."""
        self._lock.release()

    async def _check(self) -> None:
        taken = self._lock.acquire()
        if taken is False:
            self._become_second(_ANOTHER, holder=self._lock.holder())
            return
        if self._first:
            return
        alive = (await self._remove_stale_sockets()).alive
        self._absent = 0 if alive else self._absent + 1
        if alive:
            self._become_second(_ANOTHER, sockets=list(alive))
        elif self._absent >= GONE_CHECKS:
            self._become_first()

    def _become_first(self) -> None:
        if self.waits_for:
            log.info("the other plugin has ended")
        self.waits_for = ""
        self._set_first(first=True)

    def _become_second(self, reason: str, **values: object) -> None:
        # Once we have the lock its owner has ended, whatever the kubelet does to its sockets.
        self._absent = 0 if "sockets" in values else GONE_CHECKS
        if not self.waits_for:
            log.warning(
                "another accelbind plugin serves on this node: waiting until it ends", **values
            )
            self._on_wait(reason)
        self.waits_for = reason
        self._set_first(first=False)

    def _set_first(self, *, first: bool) -> None:
        if self._first is not first:
            self._first = first
            self._changed.set()
            self._changed = asyncio.Event()

    async def _remove_stale_sockets(self) -> SweptSockets:
        folder = self._folder
        try:
            swept = await self._calls.run(
                "kubelet files",
                lambda: remove_stale_sockets(folder),
                timeout=SEARCH_SECONDS,
                what=f"searching {folder}",
            )
        except HardwareError as error:
            log.warning("sockets of an ended plugin were not removed", reason=str(error))
            return SweptSockets()
        if swept.removed:
            log.info("sockets of an ended plugin removed", sockets=list(swept.removed))
        return swept


class _FolderLock:
    """A lock on a folder, for as long as it is the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        self._logged = False

    def acquire(self) -> bool | None:
        """Whether we have the lock now; None if there is no folder, or it can't be locked."""
        if self._descriptor >= 0 and _same(self._descriptor, self._folder):
            return True
        try:
            opened = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self._log_impossible(error)
            return None
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(opened)
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                return False
            self._log_impossible(error)
            return None
        self.release()
        self._descriptor = opened
        return True

    def release(self) -> None:
        """Releases it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def holder(self) -> str:
        """The process that has it, as far as the kernel shows it."""
        with contextlib.suppress(OSError, LookupError, ValueError):
            inode = f":{self._folder.stat().st_ino}"
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5].endswith(inode) and int(fields[4]) > 0:
                    return f"process {fields[4]}"
        return "a process of another container"

    def _log_impossible(self, error: OSError) -> None:
        if error.errno != errno.ENOENT and not self._logged:
            log.warning(
                "the kubelet's folder can't be locked: two plugins that start in the same instant"
                " don't notice each other",
                folder=str(self._folder),
                reason=error.strerror or str(error),
            )
            self._logged = True


def _same(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except OSError:
        return False
