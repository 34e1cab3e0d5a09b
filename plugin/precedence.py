"""One plugin of ours a node: the first one serves, every other waits until it has ended.

The kubelet keeps the plugin that registered last for a resource, and doesn't tell the other one
that it is out. So of two plugins on a node (a rolling update that overlaps, two DaemonSets by
accident) the second one waits.

Who is first is decided by a lock (flock) on the kubelet's folder itself: the kernel gives it to
one process, even of two that start in the same instant, and takes it back when that one ends,
however it ends. Nothing has to be written for it, so nothing is left behind, and the kubelet, which
clears the folder's files when it starts, can't remove it. A folder that was removed and made again
is locked anew. While there is none, there is nothing to be first in.

Plugins of before there was a lock are known by their sockets: they are waited for as well, and so
is everybody where the folder can't be locked.
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

from plugin.sockets import Swept, sweep
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, KubeletError

LOOK_SECONDS: Final = 0.2
"""Between two looks."""

CALM: Final = 10
"""How many times longer who is first waits: only a folder that is made anew can change that, and
before a socket is made in it, it is looked at anyway (`Precedence.claim`)."""

GONE_LOOKS: Final = 15
"""Looks in a row without another's sockets: a restarted kubelet removes them for a moment."""

SWEEP_SECONDS: Final = 10.0
"""For one look through the folder."""

_ANOTHER: Final = "another accelbind plugin serves on this node"

log = structlog.get_logger(room="plugin")


class Precedence:
    """Finds out whether this plugin is the one that serves on its node, for as long as it runs.

    Args:
        folder: The kubelet's folder of device plugins.
        calls: Makes the calls that may hang.
        waiting: Told once, with a sentence, each time that this one has to wait.
        look_seconds: Time between two looks.
    """

    def __init__(
        self,
        folder: Path,
        calls: BlockingCalls,
        *,
        waiting: Callable[[str], None] = lambda _: None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.waits_for = ""
        """What is waited for; empty if nothing is."""
        self._folder = folder
        self._calls = calls
        self._waiting = waiting
        self._look_seconds = look_seconds
        self._lock = _FolderLock(folder)
        self._first = False
        self._changed = asyncio.Event()
        self._absent = GONE_LOOKS

    async def run(self) -> NoReturn:
        """Looks until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(self._look_seconds * (CALM if self._first else 1))

    async def first(self) -> None:
        """Waits until this plugin is the one that serves."""
        while not self._first:
            await self._changed.wait()

    async def second(self) -> None:
        """Waits until it isn't any more: the folder was made anew, and another was faster."""
        while self._first:
            await self._changed.wait()

    def is_second(self) -> bool:
        """Whether another plugin has the folder at this moment; if nobody has, this one does."""
        return self._lock.take() is False

    def wait_for_port(self, trouble: str) -> None:
        """Another plugin, which serves on this node, has the port of this one as well.

        Args:
            trouble: Why the port can't be had.
        """
        if not self.waits_for:
            log.warning(
                "another accelbind plugin serves on this node: waiting until it ends",
                holder=self._lock.holder(),
                reason=trouble,
            )
        self.waits_for = _ANOTHER

    def claim(self) -> None:
        """Makes sure at this moment, before a socket is made.

        Raises:
            KubeletError: Another plugin has the folder.
        """
        if self._lock.take() is False:
            raise KubeletError(f"{_ANOTHER}: it was faster in {self._folder}, which is new")

    def close(self) -> None:
        """Leaves the place to others."""
        self._lock.release()

    async def _look(self) -> None:
        taken = self._lock.take()
        if taken is False:
            self._step_back(_ANOTHER, holder=self._lock.holder())
            return
        if self._first:
            return
        alive = (await self._sweep()).alive
        self._absent = 0 if alive else self._absent + 1
        if alive:
            self._step_back(_ANOTHER, sockets=list(alive))
        elif self._absent >= GONE_LOOKS:
            self._step_up()

    def _step_up(self) -> None:
        if self.waits_for:
            log.info("the other plugin has ended")
        self.waits_for = ""
        self._turn(first=True)

    def _step_back(self, why: str, **values: object) -> None:
        # Whoever had the lock is gone once we have it, whatever the kubelet does to its sockets.
        self._absent = 0 if "sockets" in values else GONE_LOOKS
        if not self.waits_for:
            log.warning(
                "another accelbind plugin serves on this node: waiting until it ends", **values
            )
            self._waiting(why)
        self.waits_for = why
        self._turn(first=False)

    def _turn(self, *, first: bool) -> None:
        if self._first is not first:
            self._first = first
            self._changed.set()
            self._changed = asyncio.Event()

    async def _sweep(self) -> Swept:
        folder = self._folder
        try:
            swept = await self._calls.run(
                "kubelet files",
                lambda: sweep(folder),
                timeout=SWEEP_SECONDS,
                what=f"looking through {folder}",
            )
        except HardwareError as error:
            log.warning("sockets of a predecessor were not removed", reason=str(error))
            return Swept()
        if swept.removed:
            log.info("sockets of a predecessor removed", sockets=list(swept.removed))
        return swept


class _FolderLock:
    """A lock on a folder, for as long as it is the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        self._said = False

    def take(self) -> bool | None:
        """Whether it is ours now; None where there is no folder, or none that can be locked."""
        if self._descriptor >= 0 and _same(self._descriptor, self._folder):
            return True
        try:
            opened = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self._impossible(error)
            return None
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(opened)
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                return False
            self._impossible(error)
            return None
        self.release()
        self._descriptor = opened
        return True

    def release(self) -> None:
        """Lets go of it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def holder(self) -> str:
        """Who has it, as far as the kernel says so."""
        with contextlib.suppress(OSError, LookupError, ValueError):
            place = f":{self._folder.stat().st_ino}"
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5].endswith(place) and int(fields[4]) > 0:
                    return f"process {fields[4]}"
        return "a process of another container"

    def _impossible(self, error: OSError) -> None:
        if error.errno != errno.ENOENT and not self._said:
            log.warning(
                "the kubelet's folder can't be locked: two plugins that start in the same instant"
                " won't see each other",
                folder=str(self._folder),
                reason=error.strerror or str(error),
            )
            self._said = True


def _same(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except OSError:
        return False
